"""The event bus of many processes: one Redis stream per run, kept for a day after the last event."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.domain.events import RUN_EVENT, RunEvent
from core.failpoints import Failpoint
from storage.memory.event_bus import EventReader
from storage.redis.streams import Fields, RedisBreaker, RedisStreams, StreamListener

log = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600
LENGTH_MAX = 5_000
_PUBLISH = Failpoint("redis.publish")


class RedisEventBus:
    """`core.ports.EventBus`. Events published while the server does not answer are lost on the bus: followers read
    the store after some silence, and at once when the server is back."""

    def __init__(
        self, client: Redis, streams: RedisStreams, breaker: RedisBreaker | None = None, *, lag_max: int = 1000
    ) -> None:
        self._client = client
        self._breaker = breaker or RedisBreaker()
        self._streams = streams
        self._lag_max = lag_max

    async def publish(self, events: Sequence[RunEvent]) -> None:
        if not events:
            return
        try:
            with _PUBLISH:
                async with self._breaker.call(), self._client.pipeline(transaction=False) as pipe:
                    for event in events:
                        entry = {"event": RUN_EVENT.dump_json(event)}
                        pipe.xadd(_stream(event.run_id), entry, maxlen=LENGTH_MAX)  # pyright: ignore[reportArgumentType] - its dict is invariant
                    for run_id in {event.run_id for event in events}:
                        pipe.expire(_stream(run_id), KEPT_SECONDS)
                    await pipe.execute()
        except (RedisError, OSError) as error:
            log.debug("%d events were stored but not published: %s", len(events), error)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent], None]:
        reader = EventReader(self._lag_max)

        def on_entry(fields: Fields) -> None:
            try:
                reader.offer(RUN_EVENT.validate_json(fields[b"event"]))
            except (ValidationError, KeyError):
                log.warning("skipping an unreadable entry in the stream of run %s", run_id)
                reader.cut_off()

        async with self._streams.listen(_stream(run_id), StreamListener(on_entry, reader.cut_off)):
            yield reader


def _stream(run_id: str) -> str:
    return f"threadhand:events:{run_id}"
