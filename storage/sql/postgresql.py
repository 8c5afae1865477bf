"""PostgreSQL: a small connection pool, and transactions that are retried after a conflict or a lost connection."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any, Generic, NamedTuple

from asyncpg import IntegrityConstraintViolationError, InterfaceError, InternalClientError, PostgresError  # pyright: ignore[reportMissingTypeStubs] - has none
from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from core.domain.errors import StorageUnavailable
from core.failpoints import Failpoint
from core.tasks import shield
from storage.sql.columns import dump_json
from storage.sql.database import ResultT, Work
from storage.sql.drivers import AsyncpgConnection, asyncpg_connection, await_in_greenlet, describe_driver_error
from storage.sql.statements import CompiledStatement

_ATTEMPTS_MAX = 8
_RETRYABLE_SQLSTATES = frozenset({"23505", "40001", "40P01"})
"""Unique violation, serialization failure, deadlock. A retry of the transaction succeeds."""
_CLOSING_SQLSTATES = frozenset({"57P01", "57P02", "25P03", "25P04"})
"""The server shuts down, one of its processes crashed, or it ended a transaction that was idle or took too long:
the connection is about to close."""
_TRANSACTION_LIMIT_SINCE = (17,)
ANSWER_SECONDS = 60.0
"""A server whose machine disappears stays silent for 15 minutes, while a replacement may be running already."""
IDLE_SECONDS = 10.0
"""Releases the locks of a process that freezes in the middle of a transaction."""
TRANSACTION_SECONDS = 20.0
"""The same for a process that freezes between preparing and executing a statement, which the server does not count
as idle. Servers before PostgreSQL 17 have no such limit."""
LOCK_SECONDS = 10.0
"""The longest wait for a locked row, so that one that stays locked does not use up the connections."""
STATEMENTS_KEPT_MAX = 400
"""More than the program has, because preparing a statement again costs two round trips."""
_WRITING = "BEGIN"
_WRITING_LONG = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_AUTOCOMMIT = ""
"""A single statement is a transaction of its own."""
_DRIVER_ERRORS = (SQLAlchemyError, PostgresError, InterfaceError, InternalClientError, OSError)


class _PooledConnection(NamedTuple):
    """A SQLAlchemy connection and its underlying asyncpg connection."""

    connection: AsyncConnection
    driver: AsyncpgConnection


class PostgresqlDatabase:
    """Keeps its own pool and sends BEGIN and COMMIT itself, because checkout, begin and checkin by SQLAlchemy cost as
    much as three statements."""

    def __init__(
        self,
        url: URL,
        *,
        connections_max: int = 10,
        answer_seconds: float = ANSWER_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        transaction_seconds: float = TRANSACTION_SECONDS,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        """`answer_seconds` limits a whole transaction on our side, `transaction_seconds` on the server's side;
        `idle_seconds` limits how long the server waits for the next statement of a transaction, and `lock_seconds` how
        long a statement waits for a lock."""
        self._engine = create_async_engine(
            url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            json_serializer=dump_json,
            hide_parameters=True,
            connect_args={"timeout": 10, "statement_cache_size": STATEMENTS_KEPT_MAX},
        )
        # not a startup parameter: some connection proxies reject those
        self._limits = "; ".join(
            f"SET {name} = {seconds * 1000:.0f}"
            for name, seconds in (
                ("idle_in_transaction_session_timeout", idle_seconds),
                ("lock_timeout", lock_seconds),
                ("statement_timeout", transaction_seconds),
            )
        )
        self._transaction_limit = f"SET transaction_timeout = {transaction_seconds * 1000:.0f}"
        self._answer_seconds = answer_seconds
        self._turns = asyncio.Semaphore(connections_max)
        self._idle: list[_PooledConnection] = []

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        del is_durable  # the server syncs each commit
        with point:
            if is_long:
                return await self._run(_WRITING_LONG, work, None)
            return await self._run(_WRITING, work, self._answer_seconds)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await self._run(_READING, work, self._answer_seconds)

    async def write_statement(
        self,
        point: Failpoint,
        statement: CompiledStatement,
        row: Mapping[str, object],
        *,
        is_durable: bool = True,
        is_urgent: bool = False,
    ) -> int:
        del is_durable  # the server syncs each commit
        with point:
            return await self._run(
                _AUTOCOMMIT, lambda c: statement.execute(c, row), self._answer_seconds, is_urgent=is_urgent
            )

    async def read_statement(self, statement: CompiledStatement, row: Mapping[str, object]) -> list[dict[str, Any]]:
        return await self._run(_AUTOCOMMIT, lambda c: statement.fetch_rows(c, row), self._answer_seconds)

    async def close(self) -> None:
        while self._idle:
            await _drop(self._idle.pop())

    async def _run(
        self, begin: str, work: Work[ResultT], answer_seconds: float | None, *, is_urgent: bool = False
    ) -> ResultT:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            transaction = _Transaction(begin, work)
            try:
                async with asyncio.timeout(answer_seconds), nullcontext() if is_urgent else self._turns:
                    line = await self._line()
                    try:
                        return await line.connection.run_sync(transaction)
                    finally:
                        if transaction.has_ended:
                            self._idle.append(line)
                        else:
                            await shield(_drop(line), name="drop a connection")
            except _DRIVER_ERRORS as error:
                if transaction.was_cut_off:
                    # the others lead to the same server and would fail, too
                    for line in self._idle:
                        line.driver.terminate()
                may_pass = transaction.was_cut_off or _sqlstate(error) in _RETRYABLE_SQLSTATES
                if not may_pass or attempt == _ATTEMPTS_MAX:
                    if isinstance(error, IntegrityError | IntegrityConstraintViolationError):
                        raise
                    raise StorageUnavailable(describe_driver_error(error)) from error
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))
        raise AssertionError("unreachable")

    async def _line(self) -> _PooledConnection:
        while self._idle:
            line = self._idle.pop()
            if not line.driver.is_closed():
                return line
            await _drop(line)
        connection = await self._engine.connect()
        line = _PooledConnection(connection, await connection.run_sync(asyncpg_connection))
        try:
            await line.driver.execute(self._limits)
            if _has_transaction_limit(line.driver):
                await line.driver.execute(self._transaction_limit)
        except BaseException:
            await shield(_drop(line), name="drop a connection")
            raise
        return line


class _Transaction(Generic[ResultT]):
    """One attempt at a transaction, and what is known about its outcome.

    `was_cut_off`: the connection broke and nothing was stored. `has_ended`: the connection can be reused."""

    def __init__(self, begin: str, work: Work[ResultT]) -> None:
        self.was_cut_off = False
        self.has_ended = False
        self._begin = begin
        self._work = work

    def __call__(self, connection: Connection) -> ResultT:
        driver, is_committing = asyncpg_connection(connection), False
        try:
            if self._begin:
                with connection.begin():
                    _begin(driver, self._begin)
                    result = self._work(connection)
                    is_committing = True
                    # if a statement failed earlier, the server rolls back instead
                    if await_in_greenlet(driver.execute("COMMIT")) != "COMMIT":
                        raise StorageUnavailable("a statement had failed before the transaction ended")
            else:
                result = self._work(connection)
        except Exception as error:
            # a connection that broke while idle fails at its first statement; a COMMIT whose reply was lost may
            # have been carried out
            if driver.is_closed() or _sqlstate(error) in _CLOSING_SQLSTATES:
                self.was_cut_off = not is_committing
            else:
                with suppress(*_DRIVER_ERRORS):
                    if self._begin:
                        await_in_greenlet(driver.execute("ROLLBACK"))
                    self.has_ended = True
            raise
        self.has_ended = True
        return result


def _has_transaction_limit(driver: AsyncpgConnection) -> bool:
    return driver.get_server_version() >= _TRANSACTION_LIMIT_SINCE


def _begin(driver: AsyncpgConnection, begin: str) -> None:
    if begin == _WRITING_LONG and _has_transaction_limit(driver):
        begin = f"{begin}; SET LOCAL transaction_timeout = 0"
    await_in_greenlet(driver.execute(begin))


async def _drop(pooled: _PooledConnection) -> None:
    """Closes the connection without waiting long for its server."""
    with suppress(*_DRIVER_ERRORS):
        await pooled.connection.invalidate()
        await pooled.connection.close()


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return state if isinstance(state, str) else None
