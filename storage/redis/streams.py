"""Listening to many Redis streams over one connection."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.domain.ids import new_id
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

BLOCK_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 10.0
"""On top of what a call may block. Ours, by `asyncio.timeout`: redis-py waits with `asyncio.wait_for`, which on Python
3.11 may swallow a cancellation; without a timeout of its own it does not."""
CONNECT_TIMEOUT_SECONDS = 5.0
PAUSE_SECONDS_MAX = 2.0
ENTRIES_PER_READ_MAX = 500
_WAKE_KEPT_SECONDS = 60

Fields = Mapping[bytes, bytes]


def create_redis_client(url: str) -> Redis:
    """A client of that server; it connects at the first use."""
    return Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - its options are untyped
        url,
        socket_timeout=None,
        socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
        health_check_interval=30,
    )


def redis_timeout(*, after_seconds: float = 0.0) -> asyncio.Timeout:
    """Raises TimeoutError, an OSError, where the server does not answer in time."""
    return asyncio.timeout(after_seconds + ANSWER_TIMEOUT_SECONDS)


class StreamListener:
    """One listener on a stream. `hear` gets each entry; `miss` is called where entries may have been lost."""

    def __init__(self, hear: Callable[[Fields], None], miss: Callable[[], None]) -> None:
        self.hear = hear
        self.miss = miss


class RedisStreams:
    """Reads all streams that somebody listens to with one blocking call, which a stream of its own interrupts when
    that set changes. A lost connection is tried again for ever; everybody is told then that something may be missed."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._wake = f"threadhand:wake:{new_id()}"
        self._last: dict[str, str] = {}
        self._ears: dict[str, set[StreamListener]] = {}
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, stream: str, ear: StreamListener) -> AsyncGenerator[None, None]:
        """Everything that is added to the stream while entered. A server that does not answer delays, and is no error:
        `miss` is called once it does."""
        try:
            await self._begin(stream, ear)
            yield
        finally:
            ears = self._ears.get(stream, set[StreamListener]())
            ears.discard(ear)
            if not ears:
                self._ears.pop(stream, None)
                self._last.pop(stream, None)

    async def close(self) -> None:
        if self._reading is not None:
            await cancel(self._reading)

    async def _begin(self, stream: str, ear: StreamListener) -> None:
        if stream not in self._last:
            try:
                async with redis_timeout():
                    last = await self._newest(stream)
            except (RedisError, OSError) as error:
                log.warning("redis does not answer: %s", type(error).__name__)
                last = "0-0"
            self._last.setdefault(stream, last)
        self._ears.setdefault(stream, set()).add(ear)
        if self._reading is None:
            self._last[self._wake] = "0-0"
            self._reading = spawn(self._read(), name="redis streams")
        else:
            await self._interrupt()

    async def _newest(self, stream: str) -> str:
        entries = await self._client.xrevrange(stream, count=1)
        return entries[0][0].decode() if entries else "0-0"

    async def _interrupt(self) -> None:
        try:
            async with redis_timeout(), self._client.pipeline(transaction=False) as pipe:
                pipe.xadd(self._wake, {"w": "1"}, maxlen=10, approximate=False)
                pipe.expire(self._wake, _WAKE_KEPT_SECONDS)
                await pipe.execute()
        except (RedisError, OSError):
            return  # the reader notices for itself

    async def _read(self) -> None:
        failures = 0
        while True:
            try:
                await self._read_once()
            except (RedisError, OSError) as error:
                if not failures:
                    log.warning("redis is gone, and is tried again: %s", error)
                failures += 1
                await asyncio.sleep(min(0.05 * 2**failures, PAUSE_SECONDS_MAX))
            else:
                if failures:
                    log.warning("redis is back")
                    self._tell_all_of_a_gap()
                failures = 0

    async def _read_once(self) -> None:
        streams = cast(Any, dict(self._last))
        async with redis_timeout(after_seconds=BLOCK_SECONDS):
            answer = await self._client.xread(
                streams, count=ENTRIES_PER_READ_MAX, block=int(BLOCK_SECONDS * 1000)
            )
        for name, entries in answer or ():
            self._take(name.decode(), entries)

    def _take(self, stream: str, entries: list[tuple[bytes, Fields]]) -> None:
        if stream not in self._last:
            return  # nobody listens any more
        self._last[stream] = entries[-1][0].decode()
        for _entry_id, fields in entries:
            for ear in tuple(self._ears.get(stream, ())):
                ear.hear(fields)

    def _tell_all_of_a_gap(self) -> None:
        for ears in tuple(self._ears.values()):
            for ear in tuple(ears):
                ear.miss()
