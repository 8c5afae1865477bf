"""SQL statements that are compiled once and run directly on the driver, and INSERT ... ON CONFLICT for both databases.

For small statements SQLAlchemy's execution (cache lookup, parameter processing, context, result) costs several times
what the database needs. Compiled statements therefore call the driver directly, inside the transaction that the
database has begun. Errors are the driver's own, not SQLAlchemy's."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Select,
    Table,
    Tuple,
    Update,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from core.domain.threads import Position, Selection
from storage.sql.columns import SanitizedText, UtcDateTime
from storage.sql.drivers import affected_row_count, asyncpg_connection, await_in_greenlet

Statement = Insert | Update | Select[*tuple[Any, ...]]
_Convert = Callable[[Any], object] | None


class _Plan(NamedTuple):
    """`parameters` in bind order, each with the function that converts a value to the driver's type, or None.

    `constants` are values fixed in the statement."""

    text: str
    parameters: tuple[tuple[str, _Convert], ...]
    constants: dict[str, object]


class CompiledStatement:
    """A statement with named parameters. Caches its compiled text, parameters and columns for each dialect.

    If the statement differs between databases, pass a function that returns it for the dialect's name. All rows passed
    to an INSERT must have the same columns."""

    def __init__(self, statement: Statement | Callable[[str], Statement]) -> None:
        self._statement = statement
        self._plans: dict[str, _Plan] = {}
        self._columns: dict[str, tuple[tuple[str, _Convert], ...]] = {}

    def execute(self, connection: Connection, *rows: Mapping[str, object]) -> int:
        """Runs the statement for each row of values in one round trip. Returns the affected row count if there is
        one row."""
        plan = self._plan(connection.dialect, rows[0])
        filled = [_filled(plan, row) for row in rows]
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            if len(filled) > 1:
                return driver.executemany(plan.text, filled).rowcount
            return driver.execute(plan.text, filled[0]).rowcount
        asyncpg = asyncpg_connection(connection)
        if len(filled) > 1:
            await_in_greenlet(asyncpg.executemany(plan.text, filled))
            return len(filled)
        return affected_row_count(await_in_greenlet(asyncpg.execute(plan.text, *filled[0])))

    def fetch_tuples(self, connection: Connection, row: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """Returns the rows of a SELECT as the driver yields them, unconverted."""
        plan = self._plan(connection.dialect, row)
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            return driver.execute(plan.text, _filled(plan, row)).fetchall()
        return await_in_greenlet(asyncpg_connection(connection).fetch(plan.text, *_filled(plan, row)))

    def fetch_rows(self, connection: Connection, row: Mapping[str, object]) -> list[dict[str, Any]]:
        """Returns the rows of a SELECT as dictionaries by column name, with converted values."""
        found = self.fetch_tuples(connection, row)
        dialect = connection.dialect
        columns = self._columns.get(dialect.name)
        if columns is None:
            columns = self._columns[dialect.name] = _columns(self._made(dialect), dialect)
        return [
            {
                name: value if convert is None else convert(value)
                for (name, convert), value in zip(columns, values, strict=True)
            }
            for values in found
        ]

    def fetch_first(self, connection: Connection, row: Mapping[str, object]) -> dict[str, Any] | None:
        """Returns the first row as a dictionary, or None if there is none."""
        return next(iter(self.fetch_rows(connection, row)), None)

    def _plan(self, dialect: Dialect, row: Mapping[str, object]) -> _Plan:
        plan = self._plans.get(dialect.name)
        if plan is None:
            plan = self._plans[dialect.name] = self._compiled(dialect, tuple(row))
        return plan

    def _compiled(self, dialect: Dialect, given: Sequence[str]) -> _Plan:
        """An INSERT lists only the given columns and does not return a generated key."""
        made = self._made(dialect)
        if isinstance(made, Insert):
            compiled = made.inline().compile(dialect=dialect, column_keys=given)
        else:
            compiled = made.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - SQL dialects return this
        names = compiled.positiontup or ()
        binds = {name: compiled.binds[name] for name in names}
        return _Plan(
            text=compiled.string,
            parameters=tuple((name, binds[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in names),
            constants={name: bind.value for name, bind in binds.items() if name not in given},
        )

    def _made(self, dialect: Dialect) -> Statement:
        return self._statement(dialect.name) if callable(self._statement) else self._statement


def _filled(plan: _Plan, row: Mapping[str, object]) -> tuple[object, ...]:
    values = {**plan.constants, **row} if plan.constants else row
    return tuple([values[name] if convert is None else convert(values[name]) for name, convert in plan.parameters])


def _columns(made: Statement, dialect: Dialect) -> tuple[tuple[str, _Convert], ...]:
    """Returns the columns of a SELECT, each with the function that converts the driver's value, or None."""
    assert isinstance(made, Select)  # noqa: S101 - only a SELECT has rows
    return tuple(
        (column.key or "", column.type.dialect_impl(dialect).result_processor(dialect, None))
        for column in made.selected_columns
    )


@cache
def insert_ignoring_conflicts(table: Table, dialect: str) -> Insert:
    """Returns an INSERT that skips rows which violate a unique index."""
    return _insert(table, dialect).on_conflict_do_nothing()


def upsert(
    table: Table,
    keys: tuple[str, ...],
    others: tuple[str, ...] = (),
    computed: Mapping[str, ColumnElement[Any]] | None = None,
    where: ColumnElement[bool] | None = None,
) -> Callable[[str], Insert]:
    """Returns a function from dialect name to an INSERT that updates `others` and `computed` if a row with `keys`
    exists and meets the condition `where`.

    `computed` columns are set to expressions that the database evaluates."""
    changed = (*others, *(computed or {}))

    def made(dialect: str) -> Insert:
        new = _insert(table, dialect).values(computed or {})
        return new.on_conflict_do_update(
            index_elements=keys, set_={name: new.excluded[name] for name in changed}, where=where
        )

    return made


def upsert_adding(table: Table, keys: tuple[str, ...], sums: tuple[str, ...]) -> Callable[[str], Insert]:
    """Returns a function from dialect name to an INSERT that adds `sums` to a row with `keys` if it exists."""

    def made(dialect: str) -> Insert:
        new = _insert(table, dialect)
        added = {name: table.c[name] + new.excluded[name] for name in sums}
        return new.on_conflict_do_update(index_elements=keys, set_=added)

    return made


def upsert_if_greater(table: Table, keys: tuple[str, ...], name: str) -> Callable[[str], Insert]:
    """Returns a function from dialect name to an INSERT that raises column `name` if a row with `keys` exists.

    Values compare by length first, then as text, like decimal numbers; a smaller value changes nothing."""

    def made(dialect: str) -> Insert:
        new, old = _insert(table, dialect), table.c[name]
        given = new.excluded[name]
        is_greater = tuple_(func.length(given), given) > tuple_(func.length(old), old)
        return new.on_conflict_do_update(index_elements=keys, set_={name: given}, where=is_greater)

    return made


def lock_name(connection: Connection, name: str) -> None:
    """Makes other transactions that lock the same name wait until this one ends. Does nothing on SQLite, which has one
    writer at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


def insert_or_skip(connection: Connection, table: Table, values: list[dict[str, object]]) -> int:
    """Inserts the rows that violate no unique index. Returns the number inserted if there is one row."""
    statement = insert_ignoring_conflicts(table, connection.dialect.name)
    return connection.execute(statement, values if len(values) > 1 else values[0]).rowcount


def insert_or_replace(
    connection: Connection, table: Table, values: Mapping[str, object], where: ColumnElement[bool] | None = None
) -> int:
    """Inserts the row, or updates the one with its primary key if that meets the condition. Returns the row count."""
    keys = tuple(column.name for column in table.primary_key)
    others = tuple(name for name in values if name not in keys)
    return connection.execute(upsert(table, keys, others, where=where)(connection.dialect.name), dict(values)).rowcount


def place_conditions(table: Table, selection: Selection) -> list[ColumnElement[bool]]:
    """Returns the conditions that select the rows of the selection's place in a table with the columns of an
    address."""
    place = {name: getattr(selection, name) for name in ("platform", "workspace_id", "channel_id")}
    return [table.c[name] == value for name, value in place.items() if value is not None]


def position_tuple(position: Position) -> Tuple:
    """Returns the position as a tuple that can be compared with a tuple of columns."""
    at, row_id = position
    return tuple_(literal(at, UtcDateTime()), literal(row_id, SanitizedText()))


def _insert(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
