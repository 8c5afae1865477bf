"""Servers that can be stopped and restarted at the same address."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from storage.redis.streams import create_redis_client
from storage.sql.database import migrate
from tests.servers import postgresql, redis, server_folder

_NO_CLOCK: Mapping[str, str] = {}
AnswerT = TypeVar("AnswerT")


class Outage(Generic[AnswerT]):
    """A server that tests can stop and restart. `answer` is the value that starting it returned, such as its URL."""

    def __init__(self, serve: Callable[[Path], AbstractContextManager[AnswerT]], folder: Path) -> None:
        self._serve = serve
        self._folder = folder
        self._running = ExitStack()
        self.answer = self._running.enter_context(serve(folder))

    async def begin(self) -> None:
        """Stops the server."""
        await asyncio.to_thread(self._running.close)

    async def end(self) -> None:
        """Restarts the server."""
        self._running = ExitStack()
        await asyncio.to_thread(self._running.enter_context, self._serve(self._folder))

    def close(self) -> None:
        self._running.close()


@asynccontextmanager
async def servers(
    *, clock: Mapping[str, str] = _NO_CLOCK, folder: Path | None = None
) -> AsyncGenerator[tuple[Outage[Callable[[str], str]], Outage[str], str], None]:
    """Context manager: yields a new PostgreSQL, a new Redis, and the URL of a database with the current schema.

    `clock` is the environment of a `clocks.Clock` for PostgreSQL. `folder` is PostgreSQL's data folder; its path must
    be short enough for a Unix socket.
    """
    with ExitStack() as stack:
        folder = folder or stack.enter_context(server_folder("thpg-"))
        database = Outage(partial(postgresql, environment=clock), folder)
        stack.callback(database.close)
        cache = Outage(redis, stack.enter_context(server_folder("thredis-")))
        stack.callback(cache.close)
        url = database.answer("postgres")
        await migrate(url)
        yield database, cache, url


@asynccontextmanager
async def full_redis(url: str) -> AsyncGenerator[None, None]:
    """Context manager: inside the block, Redis's memory is full, so it refuses commands that need more."""
    client = create_redis_client(url)
    try:
        await client.config_set("maxmemory", 1)
        yield
    finally:
        await client.config_set("maxmemory", 0)
        await client.aclose()
