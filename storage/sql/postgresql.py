"""PostgreSQL: a few connections, and transactions that run again when they lost a race or their connection."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple

from asyncpg import (  # pyright: ignore[reportMissingTypeStubs] - has none
    IntegrityConstraintViolationError,
    InterfaceError,
    InternalClientError,
    PostgresError,
)
from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from core.domain.errors import StorageUnavailable
from core.failpoints import Failpoint
from core.tasks import spawn
from storage.sql.columns import dump_json
from storage.sql.database import ResultT, Work
from storage.sql.drivers import (
    AsyncpgConnection,
    asyncpg_connection,
    await_in_greenlet,
    describe_driver_error,
)
from storage.sql.statements import CompiledStatement

_ATTEMPTS_MAX = 8
_RACES = frozenset({"23505", "40001", "40P01"})
"""Unique violation, serialization failure, deadlock. Each passes when the transaction runs anew."""
_LAST_WORDS = frozenset({"57P01", "57P02", "25P03", "25P04"})
"""The server shuts down, one of its processes crashed, or a transaction of ours stood still or took too long: the
connection is about to close."""
_TRANSACTION_LIMIT_SINCE = (17,)
ANSWER_SECONDS = 60.0
"""A server whose machine vanished says nothing for a quarter of an hour, and another one may have taken its place."""
IDLE_SECONDS = 10.0
"""A process that freezes in the middle of a transaction would keep its locks, and whoever needs them waiting."""
TRANSACTION_SECONDS = 20.0
"""The same for one that freezes between a statement's preparation and its execution: the server waits for the rest of
it then, and takes nobody as idle. Servers before PostgreSQL 17 have no such limit."""
STATEMENTS_KEPT_MAX = 400
"""More than the program has: one that is prepared anew costs two round trips."""
_WRITING = "BEGIN"
_WRITING_LONG = "BEGIN; SET LOCAL transaction_timeout = 0"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ALONE = ""
"""A single statement is a transaction by itself."""
_FAULTS = (SQLAlchemyError, PostgresError, InterfaceError, InternalClientError, OSError)


class _Line(NamedTuple):
    """A connection to the server, as SQLAlchemy has it and as its driver has it."""

    connection: AsyncConnection
    driver: AsyncpgConnection


class PostgresqlDatabase:
    """Connections that are kept, and told by us where a transaction begins and ends: to have SQLAlchemy take one out of
    a pool, begin, and put it back costs as much as three statements."""

    def __init__(
        self,
        url: URL,
        *,
        connections_max: int = 10,
        answer_seconds: float = ANSWER_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        transaction_seconds: float = TRANSACTION_SECONDS,
    ) -> None:
        """`answer_seconds` are what we wait for a whole transaction, `transaction_seconds` what the server gives it,
        `idle_seconds` what it waits in it for us."""
        self._engine = create_async_engine(
            url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            json_serializer=dump_json,
            hide_parameters=True,
            connect_args={"timeout": 10, "statement_cache_size": STATEMENTS_KEPT_MAX},
        )
        # not asked for at the connection's start: some of the proxies before a server refuse that
        self._idle_limit = f"SET idle_in_transaction_session_timeout = {idle_seconds * 1000:.0f}"
        self._transaction_limit = f"SET transaction_timeout = {transaction_seconds * 1000:.0f}"
        self._answer_seconds = answer_seconds
        self._turns = asyncio.Semaphore(connections_max)
        self._idle: list[_Line] = []

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False
    ) -> ResultT:
        with point:
            if is_long:
                return await self._run(_WRITING_LONG, work, None)
            return await self._run(_WRITING, work, self._answer_seconds)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await self._run(_READING, work, self._answer_seconds)

    async def write_statement(
        self, point: Failpoint, statement: CompiledStatement, row: Mapping[str, object]
    ) -> int:
        with point:
            return await self._run(
                _ALONE, lambda c: statement.execute(c, row), self._answer_seconds
            )

    async def read_statement(
        self, statement: CompiledStatement, row: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        return await self._run(_ALONE, lambda c: statement.fetch_rows(c, row), self._answer_seconds)

    async def close(self) -> None:
        while self._idle:
            await _drop(self._idle.pop())

    async def _run(self, begin: str, work: Work[ResultT], answer_seconds: float | None) -> ResultT:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            transaction = _Transaction(begin, work)
            try:
                async with asyncio.timeout(answer_seconds):
                    return await self._try(transaction)
            except _FAULTS as error:
                if transaction.was_cut_off:
                    self._distrust_idle()
                may_pass = transaction.was_cut_off or _sqlstate(error) in _RACES
                if not may_pass or attempt == _ATTEMPTS_MAX:
                    if isinstance(error, IntegrityError | IntegrityConstraintViolationError):
                        raise
                    raise StorageUnavailable(describe_driver_error(error)) from error
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))
        raise AssertionError("unreachable")

    async def _try(self, transaction: "_Transaction[ResultT]") -> ResultT:
        async with self._turns:
            line = await self._line()
            try:
                return await line.connection.run_sync(transaction)
            finally:
                if transaction.has_ended:
                    self._idle.append(line)
                else:
                    await asyncio.shield(spawn(_drop(line), name="drop a connection"))

    async def _line(self) -> _Line:
        while self._idle:
            line = self._idle.pop()
            if not line.driver.is_closed():
                return line
            await _drop(line)
        connection = await self._engine.connect()
        line = _Line(connection, await connection.run_sync(asyncpg_connection))
        try:
            await line.driver.execute(self._idle_limit)
            if _has_transaction_limit(line.driver):
                await line.driver.execute(self._transaction_limit)
        except BaseException:
            await asyncio.shield(spawn(_drop(line), name="drop a connection"))
            raise
        return line

    def _distrust_idle(self) -> None:
        """Where one connection broke the others, which are of the same server, are not tried one after the other."""
        for line in self._idle:
            line.driver.terminate()


class _Transaction(Generic[ResultT]):
    """One try of some work. State: how it went, as far as that is known.

    `was_cut_off`: its connection broke, and it was not stored. `has_ended`: the connection is free for another one.
    """

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
                    _commit(driver)
            else:
                result = self._work(connection)
        except Exception as error:
            # a connection that broke while nobody used it is noticed at its first statement; a commit that was
            # cut off may have happened
            if driver.is_closed() or _sqlstate(error) in _LAST_WORDS:
                self.was_cut_off = not is_committing
            else:
                with suppress(*_FAULTS):
                    if self._begin:
                        await_in_greenlet(driver.execute("ROLLBACK"))
                    self.has_ended = True
            raise
        self.has_ended = True
        return result


def _has_transaction_limit(driver: AsyncpgConnection) -> bool:
    return driver.get_server_version() >= _TRANSACTION_LIMIT_SINCE


def _begin(driver: AsyncpgConnection, begin: str) -> None:
    if begin == _WRITING_LONG and not _has_transaction_limit(driver):
        begin = _WRITING
    await_in_greenlet(driver.execute(begin))


def _commit(driver: AsyncpgConnection) -> None:
    """The server answers ROLLBACK where a statement had failed whose fault was swallowed."""
    if await_in_greenlet(driver.execute("COMMIT")) != "COMMIT":
        raise StorageUnavailable("a statement had failed before the transaction ended")


async def _drop(line: _Line) -> None:
    """Closes it, and waits for its server no longer than SQLAlchemy does."""
    with suppress(*_FAULTS):
        await line.connection.invalidate()
        await line.connection.close()


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return state if isinstance(state, str) else None
