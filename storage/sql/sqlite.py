"""SQLite: one thread and connection that write, a few that read."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
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
from storage.sql.statements import CompiledStatement

_READERS = 4
_BUSY_TIMEOUT_MS = 10_000
_BUSY_LOOK_SECONDS = 0.02
_CHECKPOINT_PAGES = 4_000
"""A turn writes the same two dozen pages again and again; 16 MB of journal wait before they are put in their places."""


class SqliteDatabase:
    """One thread and connection writes, a few read. A transaction is one hop to its thread: a third of the CPU of
    an asyncio driver, which hops for every statement. Cancelling a caller never cuts a transaction in two."""

    def __init__(self, path: str) -> None:
        self._writing = _Lane(path, "storage-write", connections=1, begin="BEGIN IMMEDIATE")
        self._reading = _Lane(path, "storage-read", connections=_READERS, begin="BEGIN")
        self._is_closed = False

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False
    ) -> ResultT:
        del is_long  # a file answers
        with point:
            return await self._in_thread(self._writing, work)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await self._in_thread(self._reading, work)

    async def write_statement(
        self, point: Failpoint, statement: CompiledStatement, row: Mapping[str, object]
    ) -> int:
        return await self.write(point, lambda c: statement.execute(c, row))

    async def read_statement(
        self, statement: CompiledStatement, row: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        return await self.read(lambda c: statement.fetch_rows(c, row))

    async def close(self) -> None:
        """What was begun ends first."""
        self._is_closed = True
        for lane in (self._reading, self._writing):
            await asyncio.to_thread(lane.close)

    async def _in_thread(self, lane: "_Lane", work: Work[ResultT]) -> ResultT:
        if self._is_closed:
            raise StorageUnavailable("the database is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(
                lane.threads, lane.transaction, work
            )
        except (IntegrityError, sqlite3.IntegrityError):
            raise
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise StorageUnavailable(describe_driver_error(error)) from error


class _Lane:
    """Threads that each keep a connection: taking one for each transaction would cost as much as two statements."""

    def __init__(self, path: str, name: str, *, connections: int, begin: str) -> None:
        self.threads = ThreadPoolExecutor(connections, thread_name_prefix=name)
        self._engine = _sqlite_engine(path, connections=connections, begin=begin)
        self._of_thread = threading.local()
        self._opened: list[Connection] = []

    def transaction(self, work: Work[ResultT]) -> ResultT:
        """To be called in one of the threads."""
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = self._engine.connect()
            self._opened.append(connection)
        with connection.begin():
            return work(connection)

    def close(self) -> None:
        """What was begun ends first."""
        self.threads.shutdown()
        for connection in self._opened:
            connection.close()
        self._engine.dispose()


def revision_of_file(path: str) -> str | None:
    """The revision of the tables in the file, None without any; nothing is written, as opening it for use would.

    What keeps it from being read is left for that to say.
    """
    address = f"{Path(path).absolute().as_uri()}?mode=rw"  # a missing file stays missing
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as opened:
        row = opened.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else None
    return None


def _keep_a_journal(connection: sqlite3.Connection) -> None:
    """SQLite waits for nobody where several make this change to a new file at once; so the waiting is done here."""
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
        assert isinstance(connection, sqlite3.Connection)  # noqa: S101 - the engine above makes no other
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}").close()
        _keep_a_journal(connection)
        for pragma in (
            "synchronous = NORMAL",
            "foreign_keys = ON",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    def begun(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - the engine above makes no other
        if driver.in_transaction:
            driver.rollback()  # what a failed COMMIT left open
        driver.execute(begin).close()

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine
