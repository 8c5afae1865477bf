"""The database: whole transactions on SQLite (one writer) or PostgreSQL (a pool), and its faults in our words."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from core.errors import ConfigurationError, StorageUnavailable
from core.failpoints import Failpoint
from storage.columns import dump_json
from storage.migrations import migrate_connection, needs_migration

ResultT = TypeVar("ResultT")
Work = Callable[[Connection], ResultT]

log = logging.getLogger(__name__)

_READERS = 4
_BUSY_TIMEOUT_MS = 10_000
_ATTEMPTS_MAX = 8
_RACES = frozenset({"23505", "40001", "40P01"})
"""PostgreSQL: unique violation, serialization failure, deadlock. Each passes when the transaction runs anew."""


class Database(Protocol):
    """Runs transactions. `work` is synchronous, may run in another thread, and may be run again after a race.

    Either all of it is stored or nothing. Raises StorageUnavailable when the database fails; the work's own
    exceptions pass through, after a rollback.
    """

    async def write(self, point: Failpoint, work: Work[ResultT]) -> ResultT:
        """A transaction that may write; on SQLite they take turns."""
        ...

    async def read(self, work: Work[ResultT]) -> ResultT:
        """A transaction that sees one state of the database and writes nothing."""
        ...

    async def close(self) -> None: ...


class SqliteDatabase:
    """One thread and connection writes, a few read. A transaction is one hop to its thread: a third of the CPU of
    an asyncio driver, which hops for every statement. Cancelling a caller never cuts a transaction in two."""

    def __init__(self, path: str) -> None:
        self._writer = _sqlite_engine(path, connections=1, begin="BEGIN IMMEDIATE")
        self._reader = _sqlite_engine(path, connections=_READERS, begin="BEGIN")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="storage-write")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="storage-read")

    async def write(self, point: Failpoint, work: Work[ResultT]) -> ResultT:
        with point:
            return await _in_thread(self._writing, self._writer, work)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await _in_thread(self._reading, self._reader, work)

    async def close(self) -> None:
        for threads, engine in ((self._reading, self._reader), (self._writing, self._writer)):
            await asyncio.to_thread(threads.shutdown)
            engine.dispose()


class PostgresqlDatabase:
    """A pool of asyncpg connections; a transaction that lost a race runs again."""

    def __init__(self, url: URL, *, connections_max: int = 10) -> None:
        engine = create_async_engine(
            url,
            pool_size=connections_max,
            max_overflow=0,
            pool_pre_ping=True,
            json_serializer=dump_json,
            connect_args={"timeout": 10},
        )
        self._writer = engine
        self._reader = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    async def write(self, point: Failpoint, work: Work[ResultT]) -> ResultT:
        with point:
            return await _in_pool(self._writer, work)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await _in_pool(self._reader, work)

    async def close(self) -> None:
        await self._writer.dispose()


async def open_database(url: str) -> Database:
    """Opens the database, made and brought up to date where needed.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host/name`; a driver in the URL
    (`sqlite+aiosqlite`, `postgresql+asyncpg`) is allowed and changes nothing. Raises ConfigurationError.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        await asyncio.to_thread(_check_file, str(parsed.database))
        database: Database = SqliteDatabase(str(parsed.database))
    else:
        database = PostgresqlDatabase(parsed.set(drivername="postgresql+asyncpg"))
    try:
        if await database.read(needs_migration):
            await database.write(_MIGRATE, migrate_connection)
    except StorageUnavailable as fault:
        await database.close()
        raise ConfigurationError(
            f"The database {parsed.render_as_string(hide_password=True)} cannot be used: {fault}"
        ) from fault
    except BaseException:
        await database.close()
        raise
    return database


async def migrate(url: str) -> None:
    """Brings the schema up to date. Raises ConfigurationError, also for a database of a newer version."""
    await (await open_database(url)).close()


_MIGRATE = Failpoint("storage.migrate")


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


def _check_file(path: str) -> None:
    folder = Path(path).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder} of the database cannot be made: {error.strerror}."
        ) from error


def _sqlite_engine(path: str, *, connections: int, begin: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,
        json_serializer=dump_json,
        connect_args={"check_same_thread": False},
    )

    def connected(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        assert isinstance(connection, sqlite3.Connection)  # noqa: S101 - the engine above makes no other
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout = {_BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


async def _in_thread(threads: ThreadPoolExecutor, engine: Engine, work: Work[ResultT]) -> ResultT:
    def transaction() -> ResultT:
        with engine.begin() as connection:
            return work(connection)

    try:
        return await asyncio.get_running_loop().run_in_executor(threads, transaction)
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise StorageUnavailable(_reason(error)) from error


async def _in_pool(engine: AsyncEngine, work: Work[ResultT]) -> ResultT:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _RACES or attempt == _ATTEMPTS_MAX:
                if isinstance(error, IntegrityError):
                    raise
                raise StorageUnavailable(_reason(error)) from error
        except (SQLAlchemyError, OSError) as error:
            raise StorageUnavailable(_reason(error)) from error
        await asyncio.sleep(random.uniform(0, 0.01 * attempt))
    raise AssertionError("unreachable")


def _reason(error: Exception) -> str:
    """One line without statements or values, which may hold what people wrote."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
