"""Knowledge entries with their chunks and vectors, and full-text and vector search over them."""

import asyncio
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from itertools import chain, islice
from operator import mul

from sqlalchemy import ColumnElement, Connection, Delete, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.failpoints import Failpoint
from core.knowledge.chunk import Chunk
from core.knowledge.ports import EntryDraft, Hit, KnowledgeEntry, Scope
from core.knowledge.terms import Term, index_terms
from storage.sql.database import Store, reads, writes
from storage.sql.full_text import rank_chunks
from storage.sql.rows import Row, RowValues, from_row, to_row
from storage.sql.statements import CompiledStatement, insert_or_skip
from storage.sql.stores.conversations import lock_thread
from storage.sql.tables import knowledge_chunks, knowledge_entries, knowledge_vectors

_BEGIN = Failpoint("storage.knowledge_begin")
_CHUNKS = Failpoint("storage.knowledge_chunks")
_FINISH = Failpoint("storage.knowledge_finish")
_BATCH = 64
_UNFINISHED_KEPT = timedelta(hours=1)


class SqlKnowledge(Store):
    """`core.knowledge.ports.KnowledgeStore`."""

    async def add(self, scope: Scope, draft: EntryDraft, chunks: Iterable[Chunk]) -> KnowledgeEntry:
        """Raises ToolError if the scope is a thread that no longer exists."""
        entry_id = new_id().replace("-", "")
        if known := await self.database.write(_BEGIN, lambda c: _begin(c, scope, draft, entry_id)):
            return known
        batches = _batches(entry_id, chunks)
        add = insert(knowledge_chunks)
        with suppress(IntegrityError):  # the entry is gone: see _finish
            while batch := await asyncio.to_thread(next, batches, None):
                await self.database.write(_CHUNKS, lambda c, b=batch: c.execute(add, b).close())
        return await self.database.write(_FINISH, lambda c: _finish(c, scope, draft, entry_id))

    async def entries(self, scopes: Sequence[Scope]) -> tuple[KnowledgeEntry, ...]:
        return await self._entries(scopes) if scopes else ()

    @reads
    def _entries(self, connection: Connection, scopes: Sequence[Scope]) -> tuple[KnowledgeEntry, ...]:
        rows = chain.from_iterable(_READY.fetch_rows(connection, _place(scope)) for scope in scopes)
        return tuple(sorted(map(_entry_of, rows), key=lambda entry: entry.entry_id, reverse=True))

    @writes(Failpoint("storage.knowledge_rename"))
    def rename(self, connection: Connection, scope: Scope, entry_id: str, name: str) -> None:
        _lock(connection, _of(scope))  # if no entry has the name yet, two entries may still get it
        mine = update(knowledge_entries).where(_of(scope), knowledge_entries.c.entry_id == entry_id)
        if connection.execute(mine.values(name=name)).rowcount:
            connection.execute(_others_named(scope, name, entry_id))

    @writes(Failpoint("storage.knowledge_remove"))
    def remove(self, connection: Connection, scope: Scope, entry_id: str) -> bool:
        statement = delete(knowledge_entries).where(_of(scope), knowledge_entries.c.entry_id == entry_id)
        return connection.execute(statement).rowcount > 0

    @reads
    def chunks(self, connection: Connection, entry_id: str, *, limit: int | None = None) -> tuple[Chunk, ...]:
        statement = (
            select(*CHUNK_COLUMNS)
            .where(knowledge_chunks.c.entry_id == entry_id)
            .order_by(knowledge_chunks.c.number)
            .limit(limit)
        )
        return tuple(map(_chunk_of, connection.execute(statement).mappings()))

    @reads
    def search(
        self, connection: Connection, terms: Sequence[Term], entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        return read_hits(connection, rank_chunks(connection, terms, entry_ids, limit))


_READY = CompiledStatement(
    select(knowledge_entries).where(
        knowledge_entries.c.scope_kind == bindparam("kind"),
        knowledge_entries.c.owner_id == bindparam("owner"),
        knowledge_entries.c.is_ready,
    )
)
CHUNK_COLUMNS = [column for column in knowledge_chunks.c if column.name != "terms"]


def read_hits(connection: Connection, scored: Sequence[tuple[int, float]]) -> tuple[Hit, ...]:
    """Returns the chunks with these ids, in the given order."""
    statement = select(*CHUNK_COLUMNS).where(knowledge_chunks.c.chunk_id.in_([chunk_id for chunk_id, _ in scored]))
    rows = {row["chunk_id"]: row for row in connection.execute(statement).mappings()}
    return tuple(
        Hit(rows[chunk_id]["entry_id"], _chunk_of(rows[chunk_id]), score)
        for chunk_id, score in scored
        if chunk_id in rows
    )


def _of(scope: Scope) -> ColumnElement[bool]:
    return and_(knowledge_entries.c.scope_kind == scope.kind, knowledge_entries.c.owner_id == scope.owner_id)


def _others_named(scope: Scope, name: str, entry_id: str) -> Delete:
    table = knowledge_entries.c
    return delete(knowledge_entries).where(_of(scope), table.name == name, table.entry_id != entry_id, table.is_ready)


def _lock(connection: Connection, *which: ColumnElement[bool]) -> None:
    """Makes other transactions that finish or rename one of these entries wait in PostgreSQL. Otherwise each could
    miss, or delete, the entry that the other one adds."""
    table = knowledge_entries.c
    entries = select(table.entry_id).where(*which).order_by(table.entry_id)
    connection.execute(entries.with_for_update()).close()


def _place(scope: Scope) -> dict[str, object]:
    return {"kind": scope.kind, "owner": scope.owner_id}


def _with_content(connection: Connection, scope: Scope, content_hash: str) -> KnowledgeEntry | None:
    entries = map(_entry_of, _READY.fetch_rows(connection, _place(scope)))
    return next((one for one in entries if one.content_hash == content_hash), None)


def _begin(connection: Connection, scope: Scope, draft: EntryDraft, entry_id: str) -> KnowledgeEntry | None:
    """Inserts the entry as not ready unless its content exists, and deletes entries that were begun long ago and
    never finished."""
    if known := _with_content(connection, scope, draft.content_hash):
        return known
    thread_id = None if scope.kind in ("agent", "upload") else scope.owner_id
    if thread_id is not None and lock_thread(connection, thread_id) is None:
        raise ToolError("The thread no longer exists; nothing was added to its knowledge.")
    connection.execute(
        delete(knowledge_entries).where(
            _of(scope),
            knowledge_entries.c.is_ready.is_(False),
            knowledge_entries.c.created_at < datetime.now(UTC) - _UNFINISHED_KEPT,
        )
    )
    connection.execute(
        insert(knowledge_entries).values(
            entry_id=entry_id,
            scope_kind=scope.kind,
            owner_id=scope.owner_id,
            thread_id=thread_id,
            **to_row(draft),
            tokens=0,
            chunk_count=0,
            is_ready=False,
            created_at=datetime.now(UTC),
        )
    )
    return None


def _finish(connection: Connection, scope: Scope, draft: EntryDraft, entry_id: str) -> KnowledgeEntry:
    """Marks the entry as ready and deletes the one of the same name, unless the same content was added meanwhile."""
    _lock(connection, _of(scope), knowledge_entries.c.name == draft.name)
    mine = knowledge_entries.c.entry_id == entry_id
    if known := _with_content(connection, scope, draft.content_hash):
        connection.execute(delete(knowledge_entries).where(mine))
        return known
    # if the same content became ready since, the unique index raises and the transaction is repeated
    connection.execute(_others_named(scope, draft.name, entry_id))
    counted = select(func.count(), func.coalesce(func.sum(knowledge_chunks.c.tokens), 0)).where(
        knowledge_chunks.c.entry_id == entry_id
    )
    chunk_count, tokens = connection.execute(counted).one()
    values = {"is_ready": True, "chunk_count": int(chunk_count), "tokens": int(tokens)}
    ready = update(knowledge_entries).where(mine).values(values).returning(*knowledge_entries.c)
    finished = connection.execute(ready).mappings().one_or_none()
    if finished is None:
        raise ToolError("The thread was deleted while the document was being added.")
    return _entry_of(finished)


def _batches(entry_id: str, chunks: Iterable[Chunk]) -> Iterator[list[RowValues]]:
    rest = iter(chunks)
    while batch := list(islice(rest, _BATCH)):
        yield [
            {**to_row(one), "entry_id": entry_id, "terms": " ".join(index_terms(f"{one.place} {one.text}".lstrip()))}
            for one in batch
        ]


def _chunk_of(row: Row) -> Chunk:
    return from_row(Chunk, row)


def _entry_of(row: Row) -> KnowledgeEntry:
    return from_row(KnowledgeEntry, row, scope=Scope(row["scope_kind"], row["owner_id"]))


_RESCORED_FACTOR = 8
"""This many times the wanted number of chunks are compared in full, because the order by signs is approximate."""


class SqlKnowledgeVectors(Store):
    """`core.knowledge.ports.KnowledgeVectors` without a database extension: sign bits narrow the search, cosines
    rank."""

    @writes(Failpoint("storage.knowledge_vectors"))
    def insert_missing(
        self, connection: Connection, entry_id: str, model: str, vectors: Sequence[Sequence[float]]
    ) -> None:
        statement = (
            select(knowledge_chunks.c.chunk_id)
            .where(knowledge_chunks.c.entry_id == entry_id)
            .order_by(knowledge_chunks.c.number)
            .with_for_update(read=True, key_share=True)
        )
        chunk_ids = connection.execute(statement).scalars().all()
        rows: list[dict[str, object]] = [
            {"chunk_id": chunk_id, "model": model, "signs": _signs(one), "vector": _unit(one)}
            for chunk_id, one in zip(chunk_ids, vectors, strict=False)
        ]
        if rows:
            insert_or_skip(connection, knowledge_vectors, rows)

    @reads
    def has_vectors(self, connection: Connection, entry_id: str, model: str) -> bool:
        statement = (
            select(knowledge_vectors.c.chunk_id)
            .join(knowledge_chunks)
            .where(knowledge_chunks.c.entry_id == entry_id, knowledge_vectors.c.model == model)
            .limit(1)
        )
        return connection.execute(statement).first() is not None

    @reads
    def nearest(
        self, connection: Connection, vector: Sequence[float], model: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        statement = (
            select(knowledge_vectors.c.chunk_id, knowledge_vectors.c.signs)
            .join(knowledge_chunks)
            .where(knowledge_chunks.c.entry_id.in_(entry_ids), knowledge_vectors.c.model == model)
        )
        wanted = _signs(vector)
        asked = int.from_bytes(wanted, "big")
        distances = [
            ((int.from_bytes(signs, "big") ^ asked).bit_count(), chunk_id)
            for chunk_id, signs in connection.execute(statement)
            if len(signs) == len(wanted)
        ]
        rough = [chunk_id for _, chunk_id in nsmallest(limit * _RESCORED_FACTOR, distances)]
        return read_hits(connection, _nearest(connection, vector, model, rough)[:limit])


def _nearest(
    connection: Connection, vector: Sequence[float], model: str, chunk_ids: Sequence[int]
) -> list[tuple[int, float]]:
    statement = select(knowledge_vectors.c.chunk_id, knowledge_vectors.c.vector).where(
        knowledge_vectors.c.chunk_id.in_(chunk_ids), knowledge_vectors.c.model == model
    )
    asked = array("f", _unit(vector))
    scored = [
        (chunk_id, sum(map(mul, asked, array("f", held))))
        for chunk_id, held in connection.execute(statement)
        if len(held) == len(asked) * asked.itemsize
    ]
    return sorted(scored, key=lambda one: (-one[1], one[0]))


def _unit(vector: Sequence[float]) -> bytes:
    """Returns the vector scaled to length 1, so that a dot product is a cosine."""
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return array("f", [value / length for value in vector]).tobytes()


def _signs(vector: Sequence[float]) -> bytes:
    bits = "".join("1" if value > 0 else "0" for value in vector)
    return int(f"0{bits}", 2).to_bytes((len(bits) + 7) // 8, "big")
