"""The Database port of the stores, and opening, creating or upgrading the database behind a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, RowMapping, Select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.failpoints import Failpoint
from storage.migrations import migrate_connection, move_connection, needs_migration, refuse_unknown
from storage.sql.statements import CompiledStatement

ResultT = TypeVar("ResultT")
StoreT = TypeVar("StoreT", bound="Store")
ParametersT = ParamSpec("ParametersT")
Work = Callable[[Connection], ResultT]


class Database(Protocol):
    """Runs transactions. `work` is synchronous, may run in another thread, and may be repeated after a conflict.

    A transaction is stored completely or not at all. Raises StorageUnavailable if the database fails. Exceptions of
    `work` roll the transaction back and propagate."""

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        """Runs a transaction that may write. SQLite runs one at a time. `is_long` lifts the time limit.

        What the transaction has changed survives a power cut unless `is_durable` is False."""
        ...

    async def read(self, work: Work[ResultT]) -> ResultT:
        """Runs a read-only transaction that sees one consistent state of the database."""
        ...

    async def write_statement(
        self,
        point: Failpoint,
        statement: CompiledStatement,
        row: Mapping[str, object],
        *,
        is_durable: bool = True,
        is_urgent: bool = False,
    ) -> int:
        """Runs one statement as a transaction of its own: a single round trip on PostgreSQL. Returns the number of rows
        it affected. The statement must be idempotent, because it may be repeated if the connection breaks.

        An urgent statement does not wait for a free connection: it gets one of its own."""
        ...

    async def read_statement(self, statement: CompiledStatement, row: Mapping[str, object]) -> list[dict[str, Any]]:
        """Returns the rows of one SELECT as dictionaries by column name."""
        ...

    async def close(self) -> None: ...


class Store:
    """A part of the database. `reads` and `writes` turn a method that takes a connection into one that runs as a
    transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database


def reads(
    work: Callable[Concatenate[StoreT, Connection, ParametersT], ResultT],
) -> Callable[Concatenate[StoreT, ParametersT], CoroutineType[Any, Any, ResultT]]:
    """Decorator: the method runs as a read-only transaction, see `Database.read`."""

    @wraps(work)
    async def read(store: StoreT, /, *args: ParametersT.args, **options: ParametersT.kwargs) -> ResultT:
        return await store.database.read(lambda connection: work(store, connection, *args, **options))

    return read


def writes(
    point: Failpoint,
) -> Callable[
    [Callable[Concatenate[StoreT, Connection, ParametersT], ResultT]],
    Callable[Concatenate[StoreT, ParametersT], CoroutineType[Any, Any, ResultT]],
]:
    """Decorator: the method runs as a transaction that may write, see `Database.write`."""

    def decorate(
        work: Callable[Concatenate[StoreT, Connection, ParametersT], ResultT],
    ) -> Callable[Concatenate[StoreT, ParametersT], CoroutineType[Any, Any, ResultT]]:
        @wraps(work)
        async def write(store: StoreT, /, *args: ParametersT.args, **options: ParametersT.kwargs) -> ResultT:
            return await store.database.write(point, lambda connection: work(store, connection, *args, **options))

        return write

    return decorate


async def read_all(
    database: Database, statement: Select[Any], convert: Callable[[RowMapping], ResultT]
) -> tuple[ResultT, ...]:
    """Returns the rows of a SELECT, each converted."""
    return await database.read(lambda c: tuple(map(convert, c.execute(statement).mappings())))


class LimitedDatabase:
    """Limits how many transactions its users run at once on a database, so that connections stay free for others. Its
    owner closes the database."""

    def __init__(self, database: Database, transactions_max: int) -> None:
        self._database = database
        self._turns = asyncio.Semaphore(transactions_max)

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        async with self._turns:
            return await self._database.write(point, work, is_long=is_long, is_durable=is_durable)

    async def read(self, work: Work[ResultT]) -> ResultT:
        async with self._turns:
            return await self._database.read(work)

    async def write_statement(
        self,
        point: Failpoint,
        statement: CompiledStatement,
        row: Mapping[str, object],
        *,
        is_durable: bool = True,
        is_urgent: bool = False,
    ) -> int:
        async with nullcontext() if is_urgent else self._turns:
            return await self._database.write_statement(
                point, statement, row, is_durable=is_durable, is_urgent=is_urgent
            )

    async def read_statement(self, statement: CompiledStatement, row: Mapping[str, object]) -> list[dict[str, Any]]:
        async with self._turns:
            return await self._database.read_statement(statement, row)

    async def close(self) -> None:
        pass


_OPEN = Failpoint("storage.open")
_MIGRATE = Failpoint("storage.migrate")
_POSTGRESQL_OPTIONS = {"host", "port", "ssl"}


async def open_database(url: str) -> Database:
    """Opens the database, and creates or upgrades its schema if needed.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host/name`; a driver in the URL
    (`sqlite+aiosqlite`, `postgresql+asyncpg`) is accepted and ignored. Raises ConfigurationError."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        await asyncio.to_thread(_make_folder, Path(str(parsed.database)).parent)
    database = await asyncio.to_thread(_connect, parsed)
    try:
        if await database.write(_OPEN, needs_migration):
            await database.write(_MIGRATE, migrate_connection, is_long=True)
    except StorageUnavailable as fault:
        await database.close()
        raise ConfigurationError(
            f"The database {parsed.render_as_string(hide_password=True)} cannot be used: {fault}"
        ) from fault
    except BaseException:
        await database.close()
        raise
    return database


@asynccontextmanager
async def opened_database(url: str) -> AsyncGenerator[Database]:
    """Context manager: yields the database of `open_database`, which is closed at the end."""
    database = await open_database(url)
    try:
        yield database
    finally:
        await database.close()


async def migrate(url: str, *, revision: str = "", may_drop: bool = False) -> None:
    """Migrates the schema to the newest revision, or to the given one, which may be older.

    Raises ConfigurationError if the database cannot be used, if it is newer than this program, or, for an older
    revision, if it is in use or if users' data would be dropped without `may_drop`."""
    if not revision:
        await (await open_database(url)).close()
        return
    database = await asyncio.to_thread(_connect, _parse(url))
    try:
        await database.write(_MIGRATE, lambda c: move_connection(c, revision, may_drop=may_drop), is_long=True)
    except StorageUnavailable as fault:
        raise ConfigurationError(f"The database cannot be used: {fault}") from fault
    finally:
        await database.close()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(
            "The database URL cannot be read; write sqlite:///file.db or postgresql://user@host/name."
        ) from error
    if backend not in ("sqlite", "postgresql"):
        raise ConfigurationError(
            f"The database {backend} is not supported; use sqlite:///file.db or postgresql://user@host/name."
        )
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError("An SQLite database needs a file: write sqlite:///file.db.")
    return parsed


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"The folder {folder} of the database cannot be made: {error.strerror}.") from error


def _connect(url: URL) -> Database:
    """Opens the database. Imports only the driver that the URL needs. Raises ConfigurationError, without touching the
    file, if this version does not know the file's revision."""
    if url.get_backend_name() == "sqlite":
        from storage.sql.sqlite import SqliteDatabase
        from storage.sql.sqlite_file import check_file

        refuse_unknown(check_file(str(url.database)))
        # Conversations are private to this user, also in a file that was restored from a backup; SQLite gives its
        # journal files the mode of the database file. If the file cannot be created, opening it reports why.
        with suppress(OSError):
            file = Path(str(url.database))
            file.touch(mode=0o600)
            file.chmod(0o600)
        return SqliteDatabase(str(url.database))
    from storage.sql.postgresql import PostgresqlDatabase

    options = dict(url.query)
    if "sslmode" in options:  # libpq's name for what asyncpg calls ssl
        options["ssl"] = options.pop("sslmode")
    if unknown := sorted(set(options) - _POSTGRESQL_OPTIONS):
        raise ConfigurationError(f"The database URL has options that are not supported: {', '.join(unknown)}.")
    return PostgresqlDatabase(url.set(drivername="postgresql+asyncpg", query=options))
