"""INSERT ... ON CONFLICT, which SQLAlchemy spells once per database."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_or_skip(connection: Connection, table: Table, values: list[dict[str, object]]) -> int:
    """Inserts the rows that violate no unique index; answers how many that were, for a single row."""
    if connection.dialect.name == "postgresql":
        statement = postgresql.insert(table).on_conflict_do_nothing()
    else:
        statement = sqlite.insert(table).on_conflict_do_nothing()
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
