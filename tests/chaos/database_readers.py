"""Reads the database of a test while the program runs, from SQLite's file or from PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TypeVar

import asyncpg

ResultT = TypeVar("ResultT")
ANSWER_SECONDS = 30.0

Rows = list[tuple[object, ...]]
DatabaseReader = Callable[[str, tuple[object, ...]], Rows]
"""Returns the rows of a query with `?` for each value, or no rows if the table does not exist yet."""


def sqlite_reader(path: Path) -> DatabaseReader:
    def read(query: str, values: tuple[object, ...]) -> Rows:
        if not path.exists():
            return []
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as opened:
                return opened.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []

    return read


@asynccontextmanager
async def postgresql_reader(url: str) -> AsyncGenerator[DatabaseReader, None]:
    """Context manager: yields a synchronous function that queries PostgreSQL.

    The driver has only coroutines, so it runs in an event loop in another thread.
    """
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="database_reader", daemon=True)
    thread.start()
    connection = await _in(loop, asyncpg.connect(url))

    def read(query: str, values: tuple[object, ...]) -> Rows:
        numbers = count(1)
        numbered = "".join(f"${next(numbers)}" if one == "?" else one for one in query)
        asked = asyncio.run_coroutine_threadsafe(connection.fetch(numbered, *values), loop)
        try:
            return [tuple(row) for row in asked.result(ANSWER_SECONDS)]
        except asyncpg.UndefinedTableError:
            return []

    try:
        yield read
    finally:
        await _in(loop, connection.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _in(loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, ResultT]) -> ResultT:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
