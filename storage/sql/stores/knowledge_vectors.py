"""Vectors of chunks, searched in two steps: by their signs over all, by the cosine over the nearest of these."""

import math
from array import array
from collections.abc import Sequence
from heapq import nsmallest
from itertools import starmap
from operator import mul

from sqlalchemy import Connection, select

from core.failpoints import Failpoint
from core.knowledge.ports import Hit
from storage.sql.database import Database
from storage.sql.stores.knowledge import read_hits
from storage.sql.tables.knowledge import knowledge_chunks, knowledge_vectors
from storage.sql.upserts import insert_or_skip

_PUT = Failpoint("storage.knowledge_vectors")
_LOOKED_AT = 8
"""So many times the wanted number is compared in full: the order by signs is rough."""


class SqlKnowledgeVectors:
    """`core.knowledge.ports.KnowledgeVectors`, without an extension of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, entry_id: str, model: str, vectors: Sequence[Sequence[float]]) -> None:
        def work(connection: Connection) -> None:
            statement = (
                select(knowledge_chunks.c.chunk_id)
                .where(knowledge_chunks.c.entry_id == entry_id)
                .order_by(knowledge_chunks.c.number)
            )
            chunk_ids = connection.execute(statement).scalars().all()
            rows: list[dict[str, object]] = [
                {"chunk_id": chunk_id, "model": model, "signs": _signs(one), "vector": _unit(one)}
                for chunk_id, one in zip(chunk_ids, vectors, strict=False)
            ]
            if rows:
                insert_or_skip(connection, knowledge_vectors, rows)

        await self._database.write(_PUT, work)

    async def has(self, entry_id: str, model: str) -> bool:
        statement = (
            select(knowledge_vectors.c.chunk_id)
            .join(knowledge_chunks, knowledge_chunks.c.chunk_id == knowledge_vectors.c.chunk_id)
            .where(knowledge_chunks.c.entry_id == entry_id, knowledge_vectors.c.model == model)
            .limit(1)
        )
        return await self._database.read(lambda c: c.execute(statement).first() is not None)

    async def nearest(
        self, vector: Sequence[float], model: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        def work(connection: Connection) -> tuple[Hit, ...]:
            rough = _nearest_signs(connection, vector, model, entry_ids, limit * _LOOKED_AT)
            return read_hits(connection, _nearest(connection, vector, model, rough)[:limit])

        return await self._database.read(work)


def _nearest_signs(
    connection: Connection,
    vector: Sequence[float],
    model: str,
    entry_ids: Sequence[str],
    count: int,
) -> list[int]:
    statement = (
        select(knowledge_vectors.c.chunk_id, knowledge_vectors.c.signs)
        .join(knowledge_chunks, knowledge_chunks.c.chunk_id == knowledge_vectors.c.chunk_id)
        .where(knowledge_chunks.c.entry_id.in_(entry_ids), knowledge_vectors.c.model == model)
    )
    wanted = _signs(vector)
    asked = int.from_bytes(wanted, "big")
    distances = [
        ((int.from_bytes(signs, "big") ^ asked).bit_count(), chunk_id)
        for chunk_id, signs in connection.execute(statement)
        if len(signs) == len(wanted)
    ]
    return [chunk_id for _, chunk_id in nsmallest(count, distances)]


def _nearest(
    connection: Connection, vector: Sequence[float], model: str, chunk_ids: Sequence[int]
) -> list[tuple[int, float]]:
    statement = select(knowledge_vectors.c.chunk_id, knowledge_vectors.c.vector).where(
        knowledge_vectors.c.chunk_id.in_(chunk_ids), knowledge_vectors.c.model == model
    )
    asked = array("f", _unit(vector))
    scored = [
        (chunk_id, sum(starmap(mul, zip(asked, array("f", held), strict=True))))
        for chunk_id, held in connection.execute(statement)
        if len(held) == len(asked) * asked.itemsize
    ]
    return sorted(scored, key=lambda one: (-one[1], one[0]))


def _unit(vector: Sequence[float]) -> bytes:
    """Length 1, so that the product of two is their cosine."""
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return array("f", [value / length for value in vector]).tobytes()


def _signs(vector: Sequence[float]) -> bytes:
    bits = "".join("1" if value > 0 else "0" for value in vector)
    return int(bits or "0", 2).to_bytes(max(1, -(-len(bits) // 8)), "big")
