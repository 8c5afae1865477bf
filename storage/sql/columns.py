"""Column types that behave alike on SQLite and PostgreSQL, the fields built from them, and the database's clock."""

import json
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import JSON, DateTime, Dialect, Float, Index, Text, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field

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


def _now() -> datetime:
    return datetime.now(UTC)


def text_column(default: str | None = "") -> Any:
    return Field(default=default, sa_type=SanitizedText)


def timestamp_column(*, index: bool = False) -> Any:
    return Field(default_factory=_now, sa_type=UtcDateTime, index=index)


def nullable_timestamp_column() -> Any:
    return Field(default=None, sa_type=UtcDateTime)


def cascading_foreign_key(column: str, *, primary_key: bool = False, index: bool = False) -> Any:
    """A foreign key; rows are deleted together with the row they reference."""
    return Field(foreign_key=column, ondelete="CASCADE", primary_key=primary_key, index=index, sa_type=SanitizedText)


def nullable_foreign_key(column: str) -> Any:
    """A foreign key that becomes NULL when the referenced row is deleted."""
    return Field(default=None, foreign_key=column, ondelete="SET NULL", index=True, sa_type=SanitizedText)


def text_primary_key() -> Any:
    return Field(primary_key=True, sa_type=SanitizedText)


def partial_unique_index(name: str, *columns: str, condition: str) -> Index:
    """Returns a unique index over the rows that meet the condition."""
    return Index(name, *columns, unique=True, sqlite_where=text(condition), postgresql_where=text(condition))
