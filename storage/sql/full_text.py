"""The full-text index over knowledge chunks: FTS5 on SQLite, `tsvector` with GIN on PostgreSQL, with our own terms.

On SQLite `knowledge_fts` is an external-content table over `knowledge_chunk`, kept in sync by triggers."""

import math
from collections.abc import Sequence

from sqlalchemy import Connection, Dialect, Text, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.types import TypeDecorator, TypeEngine

from core.knowledge.terms import Term

UNMANAGED_NAME_PREFIXES = ("knowledge_fts", "ix_knowledge_chunk_terms")
"""Name prefixes of tables and indexes that exist on one database only and are not in the metadata."""

_POSITION_MAX = 16_383
_POSITIONS_MAX = 255

SQLITE_INDEX = (
    "CREATE VIRTUAL TABLE knowledge_fts USING fts5"
    "(entry_id, terms, content='knowledge_chunk', content_rowid='chunk_id', tokenize='ascii')",
    "CREATE TRIGGER knowledge_fts_added AFTER INSERT ON knowledge_chunk BEGIN"
    " INSERT INTO knowledge_fts (rowid, entry_id, terms) VALUES (new.chunk_id, new.entry_id, new.terms); END",
    "CREATE TRIGGER knowledge_fts_removed AFTER DELETE ON knowledge_chunk BEGIN"
    " INSERT INTO knowledge_fts (knowledge_fts, rowid, entry_id, terms)"
    " VALUES ('delete', old.chunk_id, old.entry_id, old.terms); END",
)
POSTGRESQL_INDEX = ("CREATE INDEX ix_knowledge_chunk_terms ON knowledge_chunk USING gin (terms)",)
_SQLITE_SEARCH = text(
    "SELECT rowid, -bm25(knowledge_fts, 0.0, 1.0) AS score FROM knowledge_fts"
    " WHERE knowledge_fts MATCH :question ORDER BY score DESC, rowid LIMIT :limit"
)


class FullTextTerms(TypeDecorator[str]):
    """Search terms separated by spaces, in the order of the text. Write-only."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        return dialect.type_descriptor(TSVECTOR() if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        # a tsvector literal; our terms contain no quotes, spaces or backslashes
        places: dict[str, list[str]] = {}
        for position, term in enumerate(value.split(" "), start=1):
            held = places.setdefault(term, [])
            if len(held) < _POSITIONS_MAX:
                held.append(str(min(position, _POSITION_MAX)))
        return " ".join(f"'{term}':{','.join(held)}" for term, held in places.items() if term)


def rank_chunks(
    connection: Connection, terms: Sequence[Term], entry_ids: Sequence[str], limit: int
) -> list[tuple[int, float]]:
    """Returns (chunk id, score) pairs of the best chunks of these entries, best first."""
    if not terms or not entry_ids:
        return []
    if connection.dialect.name == "postgresql":
        # ts_rank ignores how rare a term is, so each term is ranked separately and weighed by its rarity
        asked = {f"t{at}": f"'{term.text}'{':*' if term.is_prefix else ''}" for at, term in enumerate(terms)}
        of_entries = "entry_id = ANY(CAST(:entry_ids AS text[]))"
        counts = ", ".join(f"count(*) FILTER (WHERE terms @@ CAST(:{name} AS tsquery))" for name in asked)
        values: dict[str, object] = {"entry_ids": list(entry_ids), **asked}
        counted = connection.execute(
            text(f"SELECT count(*), {counts} FROM knowledge_chunk WHERE {of_entries}"),  # noqa: S608 - names made above
            values,
        ).one()
        total, *held = map(int, counted)  # how many chunks there are, and how many contain each term
        weights = {f"w{at}": math.log(1 + (total - one + 0.5) / (one + 0.5)) for at, one in enumerate(held)}
        score = " + ".join(
            f"CAST(:w{at} AS float) * ts_rank(terms, CAST(:t{at} AS tsquery), 1)" for at in range(len(terms))
        )
        rows = connection.execute(
            text(
                f"SELECT chunk_id, {score} AS score FROM knowledge_chunk"  # noqa: S608 - names made above
                f" WHERE {of_entries} AND terms @@ CAST(:any_term AS tsquery)"
                " ORDER BY score DESC, chunk_id LIMIT :limit"
            ),
            {**values, **weights, "any_term": " | ".join(asked.values()), "limit": limit},
        )
        return [(int(row[0]), float(row[1])) for row in rows]
    words = " OR ".join(f'"{term.text}"{"*" if term.is_prefix else ""}' for term in terms)
    owners = " OR ".join(f'"{entry_id}"' for entry_id in entry_ids)
    question = f"entry_id : ({owners}) AND terms : ({words})"
    rows = connection.execute(_SQLITE_SEARCH, {"question": question, "limit": limit})
    return [(int(row[0]), float(row[1])) for row in rows]
