"""The event bus of many processes: one Redis stream a run, kept for a day after the last event."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.domain.events import RUN_EVENT, RunEvent
from core.failpoints import Failpoint
from storage.memory.event_bus import Reader
from storage.redis.streams import Fields, RedisStreams, StreamListener, redis_timeout

log = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600
LENGTH_MAX = 5_000
_PUBLISH = Failpoint("redis.publish")


class RedisEventBus:
    """`core.ports.EventBus`. A server that does not answer loses what is published meanwhile: followers read the
    store after some silence, and at once when it is back."""

    def __init__(self, client: Redis, streams: RedisStreams, *, lag_max: int = 1000) -> None:
        self._client = client
        self._streams = streams
        self._lag_max = lag_max

    async def publish(self, events: Sequence[RunEvent]) -> None:
        if not events:
            return
        try:
            with _PUBLISH:
                async with redis_timeout(), self._client.pipeline(transaction=False) as pipe:
                    for event in events:
                        entry = {"event": RUN_EVENT.dump_json(event)}
                        pipe.xadd(_stream(event.run_id), entry, maxlen=LENGTH_MAX)  # pyright: ignore[reportArgumentType] - its dict is invariant
                    for run_id in {event.run_id for event in events}:
                        pipe.expire(_stream(run_id), KEPT_SECONDS)
                    await pipe.execute()
        except (RedisError, OSError) as error:
            log.warning("%d events were stored but not told live: %s", len(events), error)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent], None]:
        reader = Reader(self._lag_max)

        def hear(fields: Fields) -> None:
            try:
                reader.offer(RUN_EVENT.validate_json(fields[b"event"]))
            except (ValidationError, KeyError):
                log.warning("an entry of the stream of run %s cannot be read", run_id)
                reader.cut_off()

        async with self._streams.listen(_stream(run_id), StreamListener(hear, reader.cut_off)):
            yield reader


def _stream(run_id: str) -> str:
    return f"threadhand:events:{run_id}"
