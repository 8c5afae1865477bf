"""The servers that outlive the simulated processes: the database, and what carries messages between processes."""

import asyncio
import random
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, StaticPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from core.domain.errors import StorageUnavailable
from core.domain.events import RunEvent
from core.failpoints import Failpoint
from storage.memory.event_bus import EventReader
from storage.migrations import migrate_connection
from storage.sql.columns import dump_json
from storage.sql.database import ResultT, Work
from storage.sql.statements import CompiledStatement
from tests.histories.virtual_time import EPOCH_SECONDS, SimulatedProcess, VirtualTimeLoop, current_process

SECONDS_A_DAY = 86_400
UNIX_EPOCH_DAY = 2_440_587.5
RUN_OUTCOMES = (
    "CREATE VIEW run_outcome AS SELECT *,"
    " CASE WHEN finish_reason IN ('max_iterations', 'budget') THEN 'limited' ELSE status END AS outcome FROM run"
)
ERASED_WORDS = (
    "CREATE TRIGGER erased_words AFTER UPDATE OF content ON message BEGIN INSERT INTO erased"
    " VALUES ('words of ' || json_extract(OLD.metadata, '$.message_ref'), julianday('now')); END;"
    " CREATE TRIGGER erased_version AFTER UPDATE OF text ON message_version WHEN NEW.author_id = '' BEGIN"
    " INSERT INTO erased VALUES (OLD.message_ref, julianday('now')); END"
)
ERASED_IDS = {"run": "run_id", "delivery": "delivery_id", "thread_input": "message_ref", "heard_message": "message_ref"}


class Chance:
    """The random numbers of a history. `is_calm` ends all failures, so that everything can be finished."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_calm = False
        self.failures = self.random.choice((0.0, 0.3, 1.0, 2.0))
        """How often requests fail, as a factor."""

    def fails(self, probability: float) -> bool:
        return self.random.random() < probability * self.failures and not self.is_calm

    def delay(self, usual_seconds: float) -> float:
        """Mostly around the usual delay, rarely a hundred times as long."""
        drawn = self.random.random()
        long = 1.0 if self.is_calm or drawn > 0.02 else 10 + 90 * self.random.random()
        return usual_seconds * (0.5 + drawn) * long


class SqliteMemory:
    """One SQLite connection in memory, emptied for each history. Its clock is the virtual one."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://", poolclass=StaticPool, json_serializer=dump_json, hide_parameters=True)

        def connected(connection: DBAPIConnection, _record: object) -> None:
            assert isinstance(connection, sqlite3.Connection)
            connection.isolation_level = None
            connection.execute("PRAGMA foreign_keys = ON").close()

        def begun(connection: Connection) -> None:
            self._driver(connection).execute("BEGIN").close()

        event.listen(engine, "connect", connected)
        event.listen(engine, "begin", begun)
        self.connection = engine.connect()
        with self.connection.begin():
            migrate_connection(self.connection)
        driver = self._driver(self.connection)
        driver.executescript("CREATE TABLE erased (id TEXT, at REAL)")
        driver.executescript(RUN_OUTCOMES)
        driver.executescript(ERASED_WORDS)
        for table, column in ERASED_IDS.items():
            driver.executescript(
                f"CREATE TRIGGER erased_{table} AFTER DELETE ON {table} BEGIN"  # noqa: S608 - constants
                f" INSERT INTO erased VALUES (OLD.{column}, julianday('now')); END"
            )
        self._empty = self._driver(self.connection).serialize()

    def begin(self, now: Callable[[], float]) -> None:
        """Empties the database and sets its clock."""
        driver = self._driver(self.connection)
        driver.deserialize(self._empty)

        def julianday(_moment: str) -> float:
            return (EPOCH_SECONDS + now()) / SECONDS_A_DAY + UNIX_EPOCH_DAY

        driver.create_function("julianday", 1, julianday)

    def erased(self) -> dict[str, datetime]:
        """Returns when the deleted runs, deliveries and inputs were deleted, by id or by message, and when the words
        of a message that a run had read were, by "words of" the message."""
        return {
            one: datetime.fromtimestamp((at - UNIX_EPOCH_DAY) * SECONDS_A_DAY, UTC)
            for one, at in self.rows("SELECT id, at FROM erased WHERE id != ''")
        }

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._driver(self.connection).execute(query).fetchall()

    @staticmethod
    def _driver(connection: Connection) -> sqlite3.Connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver


class SimulatedDatabase:
    """`storage.sql.database.Database` over a network: a transaction may come late, fail, or lose its answer.

    The processes named in `cut_off` cannot reach it.
    """

    def __init__(self, memory: SqliteMemory, loop: VirtualTimeLoop, chance: Chance) -> None:
        self.memory = memory
        self.cut_off: set[str] = set()
        self._loop = loop
        self._chance = chance

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False, is_durable: bool = True
    ) -> ResultT:
        del is_long, is_durable
        with point:
            return await self._request(lambda: self._committed(work))

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await self._request(lambda: self._read(work))

    async def write_statement(
        self,
        point: Failpoint,
        statement: CompiledStatement,
        row: Mapping[str, object],
        *,
        is_durable: bool = True,
        is_urgent: bool = False,
    ) -> int:
        del is_urgent
        return await self.write(point, lambda c: statement.execute(c, row), is_durable=is_durable)

    async def read_statement(self, statement: CompiledStatement, row: Mapping[str, object]) -> list[dict[str, Any]]:
        return await self.read(lambda c: statement.fetch_rows(c, row))

    async def close(self) -> None:
        return

    async def _request(self, work: Callable[[], ResultT]) -> ResultT:
        answer: asyncio.Future[ResultT] = self._loop.create_future()
        chance, process = self._chance, current_process()
        is_cut_off = process is not None and process.name in self.cut_off
        is_refused = chance.fails(0.002) or is_cut_off

        def carry_out() -> None:
            outcome: ResultT | None = None
            error: Exception | None = None
            if is_refused:
                error = StorageUnavailable("the database refuses connections")
            else:
                try:
                    outcome = work()
                except Exception as raised:
                    is_failure = isinstance(raised, SQLAlchemyError | sqlite3.Error)
                    is_conflict = isinstance(raised, IntegrityError | sqlite3.IntegrityError)
                    error = StorageUnavailable(str(raised)) if is_failure and not is_conflict else raised
                if chance.fails(0.001):
                    error = StorageUnavailable("the connection broke before the answer")

            def deliver() -> None:
                if answer.done():
                    return
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(outcome)

            self._loop.later(chance.delay(0.001), deliver)

        self._loop.later(chance.delay(0.001), carry_out)
        return await answer

    def _committed(self, work: Work[ResultT]) -> ResultT:
        with self.memory.connection.begin():
            return work(self.memory.connection)

    def _read(self, work: Work[ResultT]) -> ResultT:
        """Requests follow one another, so reading needs no transaction. SQLAlchemy begins one all the same."""
        try:
            return work(self.memory.connection)
        finally:
            self.memory.connection.rollback()


class SimulatedQueue:
    """`core.ports.RunQueue` of several processes. It may lose a run or yield it twice."""

    def __init__(self, loop: VirtualTimeLoop, chance: Chance) -> None:
        self._loop = loop
        self._chance = chance
        self._waiting: deque[str] = deque()
        self._claimers: deque[tuple[SimulatedProcess | None, asyncio.Future[str]]] = deque()

    async def put(self, run_id: str) -> None:
        for _ in range(2 if self._chance.fails(0.1) else 1):
            if not self._chance.fails(0.1):
                self._loop.later(self._chance.delay(0.002), lambda: self._arrive(run_id))

    async def get(self) -> str:
        if self._waiting:
            return self._waiting.popleft()
        answer: asyncio.Future[str] = self._loop.create_future()
        self._claimers.append((current_process(), answer))
        return await answer

    def _arrive(self, run_id: str) -> None:
        while self._claimers:
            process, answer = self._claimers.popleft()
            if not answer.done() and (process is None or process.is_alive):
                answer.set_result(run_id)
                return
        self._waiting.append(run_id)


class SimulatedBus:
    """`core.ports.EventBus` of several processes. It may lose events."""

    def __init__(self, loop: VirtualTimeLoop, chance: Chance) -> None:
        self._loop = loop
        self._chance = chance
        self._readers: dict[str, dict[EventReader, None]] = {}
        self._free_at: dict[str, float] = {}

    async def publish(self, events: Sequence[RunEvent]) -> None:
        if not events or self._chance.fails(0.02):
            return
        run_id, now = events[0].run_id, self._loop.now
        arrives = max(now + self._chance.delay(0.002), self._free_at.get(run_id, 0.0))
        self._free_at[run_id] = arrives  # events of a run stay in order
        self._loop.later(arrives - now, lambda: self._arrive(events))

    def _arrive(self, events: Sequence[RunEvent]) -> None:
        for one in events:
            for reader in tuple(self._readers.get(one.run_id, ())):
                reader.offer(one)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent], None]:
        reader = EventReader(1000)
        self._readers.setdefault(run_id, {})[reader] = None
        try:
            yield reader
        finally:
            self._readers[run_id].pop(reader, None)


class SimulatedSignals:
    """`core.ports.StopSignals` of several processes. It may lose a signal."""

    def __init__(self, loop: VirtualTimeLoop, chance: Chance) -> None:
        self._loop = loop
        self._chance = chance
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def send(self, run_id: str) -> None:
        if not self._chance.fails(0.2):
            self._loop.later(self._chance.delay(0.002), lambda: self._arrive(run_id))

    async def wait(self, run_id: str) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.setdefault(run_id, []).append(waiter)
        await waiter

    def _arrive(self, run_id: str) -> None:
        for waiter in self._waiters.pop(run_id, []):
            if not waiter.done():
                waiter.set_result(None)
