"""Plays a second transaction exactly at a statement of another one."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from core.tasks import spawn
from storage.sql.database import Database
from storage.sql.drivers import await_in_greenlet

ResultT = TypeVar("ResultT")
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


@asynccontextmanager
async def played(
    database: Database, other: Callable[[], Coroutine[Any, Any, ResultT]]
) -> AsyncIterator[tuple[Callable[[], Coroutine[Any, Any, None]], list[asyncio.Task[ResultT]]]]:
    """Yields a function that begins `other` at its first call, and returns once that is done or waits for a lock. At
    the end, `other` is done."""
    playing: list[asyncio.Task[ResultT]] = []

    async def play() -> None:
        if playing:
            return
        playing.append(spawn(other(), name="the other transaction"))
        while not playing[0].done() and not await database.read(lambda c: c.execute(WAITING).scalar_one()):
            await asyncio.sleep(0.01)

    try:
        yield play, playing
    finally:
        await asyncio.wait(playing)


@asynccontextmanager
async def played_at(
    statement: str, database: Database, other: Callable[[], Coroutine[Any, Any, ResultT]], *, is_after: bool = False
) -> AsyncIterator[list[asyncio.Task[ResultT]]]:
    """Begins `other` when such a statement is about to be executed for the first time, or has just been executed. The
    statement's transaction goes on once `other` is done or waits for a lock. At the end, `other` is done.

    Statements that are compiled once do not count, because they are executed without SQLAlchemy."""
    async with played(database, other) as (play, playing):

        def listen(_connection: object, _cursor: object, executed: str, *_rest: object) -> None:
            if re.match(statement, executed, re.DOTALL):
                await_in_greenlet(play())

        name = "after_cursor_execute" if is_after else "before_cursor_execute"
        event.listen(Engine, name, listen)
        try:
            yield playing
        finally:
            event.remove(Engine, name, listen)
