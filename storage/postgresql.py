"""PostgreSQL: a pool of connections, and transactions that run again when they lost a race or their connection."""

import asyncio
import random

from asyncpg import InterfaceError, PostgresError  # pyright: ignore[reportMissingTypeStubs] - has none
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from core.errors import StorageUnavailable
from core.failpoints import Failpoint
from storage.columns import dump_json
from storage.database import ResultT, Work
from storage.faults import reason_of

_ATTEMPTS_MAX = 8
_RACES = frozenset({"23505", "40001", "40P01"})
"""Unique violation, serialization failure, deadlock. Each passes when the transaction runs anew."""
ANSWER_SECONDS = 60.0
"""A server whose machine vanished says nothing for a quarter of an hour, and another one may have taken its place."""


class PostgresqlDatabase:
    """A pool of asyncpg connections; a transaction that lost a race, or its connection, runs again."""

    def __init__(
        self, url: URL, *, connections_max: int = 10, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        """`answer_seconds` are what a whole transaction may take."""
        engine = create_async_engine(
            url,
            pool_size=connections_max,
            max_overflow=0,
            json_serializer=dump_json,
            hide_parameters=True,
            connect_args={"timeout": 10},
        )
        self._answer_seconds = answer_seconds
        self._writer = engine
        self._reader = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    async def write(
        self, point: Failpoint, work: Work[ResultT], *, is_long: bool = False
    ) -> ResultT:
        with point:
            return await _in_pool(self._writer, work, None if is_long else self._answer_seconds)

    async def read(self, work: Work[ResultT]) -> ResultT:
        return await _in_pool(self._reader, work, self._answer_seconds)

    async def close(self) -> None:
        await self._writer.dispose()


async def _in_pool(
    engine: AsyncEngine, work: Work[ResultT], answer_seconds: float | None
) -> ResultT:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        is_committing = False
        try:
            async with asyncio.timeout(answer_seconds), engine.begin() as connection:
                result = await connection.run_sync(work)
                is_committing = True
            return result
        except DBAPIError as error:
            # a connection that broke while nobody used it is noticed at its first statement; a commit that was
            # cut off may have happened
            was_cut_off = error.connection_invalidated and not is_committing
            has_raced = getattr(error.orig, "sqlstate", None) in _RACES
            if not (was_cut_off or has_raced) or attempt == _ATTEMPTS_MAX:
                if isinstance(error, IntegrityError):
                    raise
                raise StorageUnavailable(reason_of(error)) from error
        except (SQLAlchemyError, PostgresError, InterfaceError, OSError) as error:
            raise StorageUnavailable(reason_of(error)) from error
        await asyncio.sleep(random.uniform(0, 0.01 * attempt))
    raise AssertionError("unreachable")
