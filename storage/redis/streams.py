"""A Redis client, calls that give up soon if it does not answer, and listening to many streams over one connection."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from core.domain.ids import new_id
from core.tasks import backoff_seconds, cancel, spawn

log = logging.getLogger(__name__)

BLOCK_SECONDS = 5.0
READ_SECONDS_MAX = 10.0
"""Added to the time a read may block. We use `asyncio.timeout`, because the timeouts of redis-py use
`asyncio.wait_for`, which may swallow a cancellation on Python 3.11."""
ANSWER_SECONDS_MAX = 0.5
"""The longest time that a message or a run waits for Redis."""
AWAY_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 5.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0
ENTRIES_PER_READ_MAX = 500
_WAKE_KEPT_SECONDS = 60

Fields = Mapping[bytes, bytes]


def create_redis_client(url: str) -> Redis:
    """Returns a client that connects on first use."""
    return Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - redis-py leaves these options untyped
        url, socket_timeout=None, socket_connect_timeout=CONNECT_TIMEOUT_SECONDS, health_check_interval=30
    )


class RedisAway(RedisConnectionError):
    """Redis did not answer a moment ago, so it was not asked."""


class RedisBreaker:
    """A circuit breaker. Each call times out soon. After a call that Redis does not answer, or refuses, no calls are
    made for some seconds. Then a single call tries whether Redis answers."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._away_until: float | None = None

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None, None]:
        """Context manager for one call. Raises RedisAway if no call is made, or TimeoutError, an OSError, if the call
        takes too long."""
        if (was_away := self._away_until is not None) and self._clock() < self._away_until:
            raise RedisAway("redis did not answer a moment ago")
        if was_away:
            self._away_until = self._clock() + AWAY_SECONDS
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                yield
        except (RedisError, OSError) as error:
            if not was_away:
                log.warning(
                    "redis does not take a call, so it is not asked for %.0f s: %s %s",
                    AWAY_SECONDS,
                    type(error).__name__,
                    error,
                )
            self._away_until = self._clock() + AWAY_SECONDS
            raise
        if was_away:
            log.warning("redis answers again")
        self._away_until = None


class StreamListener:
    """A listener on a stream. `on_entry` receives each entry; `on_gap` is called after entries may have been missed."""

    def __init__(self, on_entry: Callable[[Fields], None], on_gap: Callable[[], None]) -> None:
        self.on_entry = on_entry
        self.on_gap = on_gap


class RedisStreams:
    """Reads all streams that have listeners with one blocking call. A wake-up stream interrupts the call when the set
    of streams changes. A lost connection is retried forever; all listeners get `on_gap` after that."""

    def __init__(self, client: Redis, breaker: RedisBreaker | None = None) -> None:
        self._client = client
        self._breaker = breaker or RedisBreaker()
        self._wake = f"threadhand:wake:{new_id()}"
        self._last: dict[str, str] = {}
        self._listeners: dict[str, set[StreamListener]] = {}
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, stream: str, listener: StreamListener) -> AsyncGenerator[None, None]:
        """Context manager: inside the block, the listener receives every entry added to the stream. If the server
        does not answer, nothing is raised; `on_gap` is called once it does."""
        try:
            if stream not in self._last:
                try:
                    async with self._breaker.call():
                        entries = await self._client.xrevrange(stream, count=1)
                        last = entries[0][0].decode() if entries else "0-0"
                except (RedisError, OSError):
                    last = "0-0"
                self._last.setdefault(stream, last)
            self._listeners.setdefault(stream, set()).add(listener)
            if self._reading is None:
                self._last[self._wake] = "0-0"
                self._reading = spawn(self._read(), name="redis streams")
            else:
                with suppress(RedisError, OSError):  # the reader notices by itself
                    async with self._breaker.call(), self._client.pipeline(transaction=False) as pipe:
                        pipe.xadd(self._wake, {"w": "1"}, maxlen=10, approximate=False)
                        pipe.expire(self._wake, _WAKE_KEPT_SECONDS)
                        await pipe.execute()
            yield
        finally:
            listeners = self._listeners.get(stream, set[StreamListener]())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(stream, None)
                self._last.pop(stream, None)

    async def close(self) -> None:
        if self._reading is not None:
            await cancel(self._reading)

    async def _read(self) -> None:
        failures = 0
        while True:
            try:
                streams = cast(Any, dict(self._last))
                async with asyncio.timeout(BLOCK_SECONDS + READ_SECONDS_MAX):
                    answer = await self._client.xread(
                        streams, count=ENTRIES_PER_READ_MAX, block=int(BLOCK_SECONDS * 1000)
                    )
                for name, entries in answer or ():
                    stream = name.decode()
                    if stream not in self._last:
                        continue  # the last listener has left
                    self._last[stream] = entries[-1][0].decode()
                    for _entry_id, fields in entries:
                        for listener in tuple(self._listeners.get(stream, ())):
                            listener.on_entry(fields)
                if failures:
                    log.warning("redis is back")
                    for listeners in tuple(self._listeners.values()):
                        for listener in tuple(listeners):
                            listener.on_gap()
                failures = 0
            except Exception as error:  # whatever it is, the process has no other reader
                if not failures:
                    log.warning("redis is unreachable, retrying: %r", error)
                failures += 1
                await asyncio.sleep(backoff_seconds(failures, first=PAUSE_SECONDS, most=PAUSE_SECONDS_MAX))
