"""Statements that are compiled once and then only filled in.

For one of the small statements of a turn SQLAlchemy's own way (finding the compiled form again, naming and ordering the
parameters, a context and a result of its own) costs several times what the database takes. SQLite's driver is therefore
called itself, within the transaction that SQLAlchemy has begun; faults are then the driver's own, not SQLAlchemy's.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import Insert, Select, Update

Statement = Insert | Update | Select[*tuple[Any, ...]]
_Convert = Callable[[object], object] | None
_Plan = tuple[str, tuple[tuple[str, _Convert], ...]]


class Prepared:
    """One statement whose values are all bound by name. State: its text and its parameters, per kind of database.

    It may be given as a function of the database's name.
    """

    def __init__(self, statement: Statement | Callable[[str], Statement]) -> None:
        self._statement = statement
        self._plans: dict[str, _Plan] = {}

    def run(self, connection: Connection, *rows: Mapping[str, object]) -> None:
        """Runs it for one row of values, or for each of many in one go."""
        text, filled = self._filled(connection.dialect, rows)
        driver = connection.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            connection.exec_driver_sql(text, filled if len(filled) > 1 else filled[0])
        elif len(filled) > 1:
            driver.executemany(text, filled).close()
        else:
            driver.execute(text, filled[0]).close()

    def found(self, connection: Connection, row: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """The rows of a SELECT as the driver gives them."""
        text, filled = self._filled(connection.dialect, (row,))
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            return driver.execute(text, filled[0]).fetchall()
        return connection.exec_driver_sql(text, filled[0]).all()

    def _filled(
        self, dialect: Dialect, rows: Sequence[Mapping[str, object]]
    ) -> tuple[str, list[tuple[object, ...]]]:
        text, names = self._plans.get(dialect.name) or self._compiled(dialect, tuple(rows[0]))
        return text, [
            tuple([row[name] if convert is None else convert(row[name]) for name, convert in names])
            for row in rows
        ]

    def _compiled(self, dialect: Dialect, given: Sequence[str]) -> _Plan:
        """An INSERT names the columns that it is given, and does not answer its generated key."""
        made = self._statement(dialect.name) if callable(self._statement) else self._statement
        if isinstance(made, Insert):
            compiled = made.inline().compile(dialect=dialect, column_keys=given)
        else:
            compiled = made.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - what a dialect for SQL makes
        names = tuple((name, _converter(compiled, name)) for name in compiled.positiontup or ())
        plan = self._plans[dialect.name] = compiled.string, names
        return plan


def _converter(compiled: SQLCompiler, name: str) -> _Convert:
    kind = compiled.binds[name].type.dialect_impl(compiled.dialect)
    return kind.bind_processor(compiled.dialect)
