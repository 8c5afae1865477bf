"""SQLite: one writer thread and a few reader threads, each with its own connection."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from core.domain.errors import StorageUnavailable
from core.failpoints import Failpoint
from storage.sql.columns import dump_json
from storage.sql.database import ResultT, Work
from storage.sql.drivers import describe_driver_error
from storage.sql.sqlite_file import WalSync
from storage.sql.statements import CompiledStatement

_READERS = 4
_BUSY_TIMEOUT_MS = 10_000
_BUSY_LOOK_SECONDS = 0.02
_PAGE_BYTES = 2048
"""For new files. A turn changes two dozen pages by a few hundred bytes each, and the log holds them whole. With 4,096
bytes the log is half as long again; with 1,024, reading a history takes half as long again."""
_CHECKPOINT_PAGES = 8_000
"""A turn rewrites the same two dozen pages; a checkpoint after 16 MB of journal copies each of them once."""


class SqliteDatabase:
    """Runs each transaction with a single switch to another thread. This takes a third of the CPU time of an asyncio
    driver, which switches for every statement. Cancelling the caller never interrupts a transaction."""

    def __init__(self, path: str) -> None:
        self._writing = _ConnectionThreads(path, "storage-write", connections=1, begin="BEGIN IMMEDIATE")
        self._reading = _ConnectionThreads(path, "storage-read", connections=_READERS, begin="BEGIN")
        self._wal_sync = WalSync(path)
        self._is_closed = False

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        del is_long  # transactions have no time limit here
        with point:
            return await self._in_thread(self._writing, partial(self._commit, work, is_durable))

    def _commit(self, work: Work[ResultT], is_durable: bool, done: "Future[ResultT]") -> None:
        """Runs a transaction in the writing thread. It is done once its changes are as durable as they must be."""
        changes = self._writing.changes
        result = self._writing.run(work)
        if is_durable and self._writing.changes != changes:
            self._wal_sync.begin_sync().add_done_callback(partial(_end, done, result))
        else:
            done.set_result(result)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await self._in_thread(self._reading, lambda done: done.set_result(self._reading.run(work)))

    async def write_statement(
        self,
        point: Failpoint,
        statement: CompiledStatement,
        row: Mapping[str, object],
        *,
        is_durable: bool = True,
        is_urgent: bool = False,
    ) -> int:
        del is_urgent  # there is one writer, whose transactions are short
        return await self.write(point, lambda c: statement.execute(c, row), is_durable=is_durable)

    async def read_statement(self, statement: CompiledStatement, row: Mapping[str, object]) -> list[dict[str, Any]]:
        return await self.read(lambda c: statement.fetch_rows(c, row))

    async def close(self) -> None:
        """Waits for transactions that have begun."""
        self._is_closed = True
        for threads in (self._reading, self._writing):
            await asyncio.to_thread(threads.close)
        await asyncio.to_thread(self._wal_sync.close)

    async def _in_thread(self, threads: "_ConnectionThreads", work: "Callable[[Future[ResultT]], None]") -> ResultT:
        """Calls `work` in a thread, and waits for the future that it is given. The event loop wakes up once: that costs
        as much as a short transaction."""
        if self._is_closed:
            raise StorageUnavailable("the database is closed")
        done = Future[ResultT]()
        done.set_running_or_notify_cancel()  # so cancelling the caller cannot cancel the transaction
        threads.executor.submit(_run, work, done)
        try:
            return await asyncio.wrap_future(done)
        except (IntegrityError, sqlite3.IntegrityError):
            raise
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StorageUnavailable(describe_driver_error(error)) from error


def _end(done: "Future[ResultT]", result: ResultT, sync: "Future[None]") -> None:
    error = sync.exception()
    if error is None:
        done.set_result(result)
    else:
        unavailable = StorageUnavailable(f"the disk does not store the database: {error}")
        unavailable.__cause__ = error
        done.set_exception(unavailable)


def _run(work: "Callable[[Future[ResultT]], None]", done: "Future[ResultT]") -> None:
    try:
        work(done)
    except BaseException as error:
        done.set_exception(error)


class _ConnectionThreads:
    """Threads that keep a connection each. Checking one out for every transaction would cost as much as two
    statements. `changes` counts the rows that the newest transaction's connection has changed."""

    def __init__(self, path: str, name: str, *, connections: int, begin: str) -> None:
        self.executor = ThreadPoolExecutor(connections, thread_name_prefix=name)
        self._engine = _sqlite_engine(path, connections=connections, begin=begin)
        self._of_thread = threading.local()
        self._opened: list[Connection] = []
        self.changes = 0

    def run(self, work: Work[ResultT]) -> ResultT:
        """Runs a transaction. Must be called in one of the threads."""
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = self._engine.connect()
            self._opened.append(connection)
        with connection.begin():
            result = work(connection)
        driver = connection.connection.driver_connection
        self.changes = driver.total_changes if isinstance(driver, sqlite3.Connection) else 0
        return result

    def close(self) -> None:
        """Waits for transactions that have begun."""
        self.executor.shutdown()
        for connection in self._opened:
            connection.close()
        self._engine.dispose()


def _keep_a_journal(connection: sqlite3.Connection) -> None:
    """Switches to WAL. SQLite ignores its busy timeout for this change, so waiting for other processes is done here."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_LOOK_SECONDS)
        else:
            return


def _sqlite_engine(path: str, *, connections: int, begin: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,
        json_serializer=dump_json,
        hide_parameters=True,
        connect_args={"check_same_thread": False},
    )

    def connected(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        assert isinstance(connection, sqlite3.Connection)  # noqa: S101 - this engine creates no other
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}").close()
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}").close()  # ignored by files with pages
        _keep_a_journal(connection)
        for pragma in (
            # syncs the log only before a checkpoint; `WalSync` does it for each transaction that must be durable
            "synchronous = NORMAL",
            "foreign_keys = ON",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    def begun(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - this engine creates no other
        if driver.in_transaction:
            driver.rollback()  # a failed COMMIT leaves the transaction open
        driver.execute(begin).close()

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine
