"""Statements that are compiled once and then only filled in.

For one of the small statements of a turn SQLAlchemy's own way (finding the compiled form again, naming and ordering the
parameters, a context of its own) costs several times what the database takes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import Insert, Select, Update

Statement = Insert | Update | Select[*tuple[Any, ...]]
_Convert = Callable[[object], object] | None
_Plan = tuple[str, tuple[tuple[str, _Convert], ...]]


class Prepared:
    """One statement whose values are all bound by name. State: its text and its parameters, per kind of database.

    It may be given as a function of the database's name. Results come back as the driver gives them.
    """

    def __init__(self, statement: Statement | Callable[[str], Statement]) -> None:
        self._statement = statement
        self._plans: dict[str, _Plan] = {}

    def run(self, connection: Connection, *rows: Mapping[str, object]) -> CursorResult[Any]:
        """Runs it for one row of values, or for each of many in one go."""
        dialect = connection.dialect
        text, names = self._plans.get(dialect.name) or self._compiled(dialect, tuple(rows[0]))
        filled = [
            tuple([row[name] if convert is None else convert(row[name]) for name, convert in names])
            for row in rows
        ]
        return connection.exec_driver_sql(text, filled if len(filled) > 1 else filled[0])

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
