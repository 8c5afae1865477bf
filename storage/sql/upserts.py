"""INSERT ... ON CONFLICT, which SQLAlchemy spells once per database."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, func, tuple_
from sqlalchemy.dialects import postgresql, sqlite


@cache
def insert_ignoring_conflicts(table: Table, dialect: str) -> Insert:
    """The statement for the database of that name, without values."""
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def upsert(
    table: Table,
    keys: tuple[str, ...],
    others: tuple[str, ...] = (),
    computed: Mapping[str, ColumnElement[Any]] | None = None,
) -> Callable[[str], Insert]:
    """Inserts the row, or sets its other columns where one with these keys is there: the statement for the database of
    a name, without values but those that the database computes."""
    changed = (*others, *(computed or {}))

    def made(dialect: str) -> Insert:
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        new = insert(table).values(computed or {})
        return new.on_conflict_do_update(
            index_elements=keys, set_={name: new.excluded[name] for name in changed}
        )

    return made


def upsert_if_greater(table: Table, keys: tuple[str, ...], name: str) -> Callable[[str], Insert]:
    """Inserts the row, or sets that column of the one with these keys to a greater value: one that is longer, or as
    long and later in the alphabet."""

    def made(dialect: str) -> Insert:
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        new, old = insert(table), table.c[name]
        given = new.excluded[name]
        is_greater = tuple_(func.length(given), given) > tuple_(func.length(old), old)
        return new.on_conflict_do_update(index_elements=keys, set_={name: given}, where=is_greater)

    return made


def insert_or_skip(connection: Connection, table: Table, values: list[dict[str, object]]) -> int:
    """Inserts the rows that violate no unique index; answers how many that were, for a single row."""
    statement = insert_ignoring_conflicts(table, connection.dialect.name)
    if len(values) == 1:
        return connection.execute(statement, values[0]).rowcount
    return connection.execute(statement, values).rowcount


def insert_or_replace(
    connection: Connection, table: Table, keys: tuple[str, ...], values: dict[str, object]
) -> None:
    """Inserts the row, or sets its other columns where one with these keys is there."""
    others = tuple(name for name in values if name not in keys)
    connection.execute(upsert(table, keys, others)(connection.dialect.name), values)
