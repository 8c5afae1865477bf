"""Keeps events that could not be handled yet, and retries them, the oldest of each channel first."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from core.domain.errors import StorageUnavailable, SurfaceError
from core.tasks import cancel, spawn

RETRY_SECONDS = 2.0
RETRY_SECONDS_MAX = 10.0
"""The pause between retries doubles from RETRY_SECONDS to this."""
RETRY_EVENTS_MAX = 2_000
PLATFORM_SECONDS_MAX = 3600.0
"""If the platform fails for an event for this long, the event is dropped. Failures of the database are retried without
a limit."""

ProcessEvent = Callable[[], Awaitable[object]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeptEvent:
    process: ProcessEvent
    kept_at: float
    """The time of `time.monotonic()` at which the event was added."""


class RetryBuffer:
    """Keeps events that could not be handled because the database or the platform was unavailable, and retries them.

    Each event belongs to a queue, such as its channel. The events of a queue are retried in order, and no queue waits
    for another.

    Slack redelivers an event for only six minutes and Discord never does, but the database may be down for longer. An
    event may also be redelivered to another process, so `process` must have no further effect the second time. Dedupe
    keys ensure this."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._queues: dict[str, dict[str, _KeptEvent]] = {}
        self._retries: set[asyncio.Task[None]] = set()

    async def handle_or_keep(self, queue: str, event_id: str, process: ProcessEvent) -> None:
        """Handles an event. Keeps it if the database or the platform is unavailable, or if earlier events of the queue
        are still waiting."""
        if queue in self._queues:
            self.add(queue, event_id, process)
            return
        try:
            await process()
        except (StorageUnavailable, SurfaceError) as error:
            log.info("%s: event %s has to wait: %s", self._platform, event_id, error)
            self.add(queue, event_id, process)

    def add(self, queue: str, event_id: str, process: ProcessEvent) -> None:
        """Adds an event that `process` handles. Ignores an event that is already kept or has no id."""
        events = self._queues.get(queue, {})
        if not event_id or event_id in events:
            return
        if sum(map(len, self._queues.values())) >= RETRY_EVENTS_MAX:
            log.error("%s: event %s is dropped: too many wait", self._platform, event_id)
            return
        if not self._queues:
            log.warning("%s: events wait until they can be handled", self._platform)
        if queue not in self._queues:
            self._queues[queue] = events
            task = spawn(self._retry(queue), name=f"{self._platform} kept events of {queue}")
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)
        events[event_id] = _KeptEvent(process, time.monotonic())

    async def close(self) -> None:
        for task in tuple(self._retries):
            await cancel(task)

    async def _retry(self, queue: str) -> None:
        events, pause = self._queues[queue], RETRY_SECONDS
        while events:
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_SECONDS_MAX)
            for event_id, event in tuple(events.items()):
                try:
                    await event.process()
                except StorageUnavailable:
                    break
                except SurfaceError:
                    if time.monotonic() - event.kept_at < PLATFORM_SECONDS_MAX:
                        continue
                    log.exception("%s: event %s is dropped", self._platform, event_id)
                except Exception:  # an event that breaks the handler must not block the events behind it
                    log.exception("%s: event %s is dropped", self._platform, event_id)
                del events[event_id]
        del self._queues[queue]
        if not self._queues:
            log.info("%s: the events that had to wait were handled", self._platform)
