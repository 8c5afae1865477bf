"""Column types that behave alike on SQLite and PostgreSQL, the columns built from them, and the database's clock."""

import json
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import JSON, Column, DateTime, Dialect, Float, ForeignKey, Index, Text, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names every constraint, because a migration on SQLite can change only named ones."""


def dump_json(value: object) -> str:
    """Returns compact JSON that both databases accept: NaN becomes null, and lone surrogates stay escaped."""
    try:
        return to_json(value, inf_nan_mode="null").decode()
    except (PydanticSerializationError, UnicodeError):
        plain = json.loads(json.dumps(value), parse_constant=lambda _name: None)
        return json.dumps(plain, separators=(",", ":"))


ValueT = TypeVar("ValueT", contravariant=True)


class _BindProcessor(Protocol[ValueT]):
    """Converts a value to one of the driver's types."""

    def __call__(self, value: ValueT | None) -> Any: ...


class SanitizedText(TypeDecorator[str]):
    """User-supplied text. NUL and lone surrogates, which PostgreSQL or UTF-8 cannot store, become U+FFFD."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> "_BindProcessor[str]":
        return _sanitized  # SQLAlchemy would wrap it, and a turn of a run stores 150 texts


def _sanitized(value: str | None) -> str | None:
    if value is None or value.isascii():
        return value if not value or "\0" not in value else value.replace("\0", "\ufffd")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


class UtcDateTime(TypeDecorator[datetime]):
    """A timestamp, read back as an aware UTC datetime. Naive datetimes raise ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> "_BindProcessor[datetime]":
        return _sqlite_timestamp if dialect.name == "sqlite" else _in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _in_utc(value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is UTC:
        return value
    if value.tzinfo is None:
        raise ValueError("a timestamp without a time zone cannot be stored")
    return value.astimezone(UTC)


def _sqlite_timestamp(value: datetime | None) -> str | None:
    """Returns the text that SQLAlchemy reads back as this time."""
    utc = _in_utc(value)
    return utc.isoformat(" ", "microseconds").removesuffix("+00:00") if utc else None


class JsonDocument(TypeDecorator[Any]):
    """A JSON value, stored as compact text so that the order of keys is kept."""

    impl = JSON(none_as_null=True)
    cache_ok = True


class DatabaseNow(FunctionElement[float]):
    """SQL expression: seconds since the epoch by the database's clock when the statement runs."""

    type = Float()
    inherit_cache = True
    name = "database_now"


@compiles(DatabaseNow, "sqlite")
def _sqlite_now(_element: DatabaseNow, compiler: SQLCompiler, **options: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseNow, "postgresql")
def _postgresql_now(_element: DatabaseNow, compiler: SQLCompiler, **options: object) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


def keys(*names: str) -> list[Column[str]]:
    return [Column(name, SanitizedText, primary_key=True) for name in names]


def texts(*names: str, default: str = "") -> list[Column[str]]:
    return [Column(name, SanitizedText, nullable=False, default=default) for name in names]


def nullable_texts(*names: str) -> list[Column[str]]:
    return [Column(name, SanitizedText) for name in names]


def timestamps(*names: str, index: bool = False) -> list[Column[datetime]]:
    return [Column(name, UtcDateTime, nullable=False, default=lambda: datetime.now(UTC), index=index) for name in names]


def nullable_timestamps(*names: str) -> list[Column[datetime]]:
    return [Column(name, UtcDateTime) for name in names]


def cascading_foreign_key(name: str, column: str, *, primary_key: bool = False, index: bool = False) -> Column[str]:
    """A foreign key; rows are deleted together with the row they reference."""
    reference = ForeignKey(column, ondelete="CASCADE")
    return Column(name, SanitizedText, reference, nullable=False, primary_key=primary_key, index=index)


def nullable_foreign_key(name: str, column: str) -> Column[str]:
    """A foreign key that becomes NULL when the referenced row is deleted."""
    return Column(name, SanitizedText, ForeignKey(column, ondelete="SET NULL"), index=True)


def partial_unique_index(name: str, *columns: str, condition: str) -> Index:
    """Returns a unique index over the rows that meet the condition."""
    return Index(name, *columns, unique=True, sqlite_where=text(condition), postgresql_where=text(condition))
