"""Keeps events that could not be handled yet, and retries them, oldest first."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from core.domain.errors import StorageUnavailable, SurfaceError
from core.tasks import cancel, spawn

RETRY_SECONDS = 2.0
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
    """Keeps events that could not be handled because the database or the platform was unavailable, and retries them,
    oldest first.

    Slack redelivers an event for only six minutes and Discord never does, but the database may be down for longer. An
    event may also be redelivered to another process, so `process` must have no further effect the second time. Dedupe
    keys ensure this."""

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._events: OrderedDict[str, _KeptEvent] = OrderedDict()
        self._trying: asyncio.Task[None] | None = None

    async def handle(self, event_id: str, process: ProcessEvent) -> None:
        """Handles an event. Keeps it if the database or the platform is unavailable, or if earlier events are still
        waiting."""
        if self._events:
            self.add(event_id, process)
            return
        try:
            await process()
        except (StorageUnavailable, SurfaceError) as error:
            log.info("%s: event %s has to wait: %s", self._platform, event_id, error)
            self.add(event_id, process)

    def add(self, event_id: str, process: ProcessEvent) -> None:
        """Adds an event that `process` handles. Ignores an event that is already kept or has no id."""
        if not event_id or event_id in self._events:
            return
        if len(self._events) == RETRY_EVENTS_MAX:
            log.error("%s: event %s is dropped: too many wait", self._platform, event_id)
            return
        self._events[event_id] = _KeptEvent(process, time.monotonic())
        if self._trying is None or self._trying.done():
            log.warning("%s: events wait until they can be handled", self._platform)
            self._trying = spawn(self._try_again(), name=f"{self._platform} kept events")

    async def close(self) -> None:
        if self._trying is not None:
            await cancel(self._trying)

    async def _try_again(self) -> None:
        handled = 0
        while self._events:
            await asyncio.sleep(RETRY_SECONDS)
            for event_id, event in tuple(self._events.items()):
                try:
                    await event.process()
                    handled += 1
                except StorageUnavailable:
                    break
                except SurfaceError:
                    if time.monotonic() - event.kept_at < PLATFORM_SECONDS_MAX:
                        continue
                    log.exception("%s: event %s is dropped", self._platform, event_id)
                except Exception:  # an event that breaks the handler must not block the events behind it
                    log.exception("%s: event %s is dropped", self._platform, event_id)
                del self._events[event_id]
        log.info("%s: %s events that had to wait were handled", self._platform, handled)
