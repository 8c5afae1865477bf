"""INSERT ... ON CONFLICT, which SQLAlchemy spells once per database."""

from functools import cache

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


@cache
def skipping(table: Table, dialect: str) -> Insert:
    """The statement for the database of that name, without values."""
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def insert_or_skip(connection: Connection, table: Table, values: list[dict[str, object]]) -> int:
    """Inserts the rows that violate no unique index; answers how many that were, for a single row."""
    statement = skipping(table, connection.dialect.name)
    if len(values) == 1:
        return connection.execute(statement, values[0]).rowcount
    return connection.execute(statement, values).rowcount


def insert_or_replace(
    connection: Connection, table: Table, keys: tuple[str, ...], values: dict[str, object]
) -> None:
    """Inserts the row, or sets its other columns where one with these keys is there."""
    changes = {name: value for name, value in values.items() if name not in keys}
    if connection.dialect.name == "postgresql":
        statement = postgresql.insert(table).values(values)
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes))
    else:
        twin = sqlite.insert(table).values(values)
        connection.execute(twin.on_conflict_do_update(index_elements=keys, set_=changes))
