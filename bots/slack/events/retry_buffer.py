"""What the database did not take. Slack delivers it again for six minutes, and the database may be away for longer."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from core.domain.errors import StorageUnavailable
from core.tasks import cancel, spawn

PAUSE_SECONDS = 2.0
EVENTS_MAX = 2_000

Take = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


class Refused:
    """Tries them again in the order in which they came, until they are taken. State: those events.

    Slack is not told that they are taken, so another bot may take them, or the next start: whoever comes later finds
    that it is done.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[str, Take] = OrderedDict()
        self._trying: asyncio.Task[None] | None = None

    def keep(self, event_id: str, take: Take) -> None:
        """`take` is what to try; a redelivery of the event changes nothing."""
        if not event_id or event_id in self._events:
            return
        if len(self._events) == EVENTS_MAX:
            log.error("slack: event %s is dropped, so many wait for the database", event_id)
            return
        self._events[event_id] = take
        if self._trying is None or self._trying.done():
            log.warning("slack: events wait for the database")
            self._trying = spawn(self._try_again(), name="slack refused events")

    async def close(self) -> None:
        if self._trying is not None:
            await cancel(self._trying)

    async def _try_again(self) -> None:
        taken = 0
        while self._events:
            await asyncio.sleep(PAUSE_SECONDS)
            for event_id, take in tuple(self._events.items()):
                try:
                    await take()
                except StorageUnavailable:
                    break
                except Exception:
                    log.exception("slack: event %s is dropped", event_id)
                del self._events[event_id]
                taken += 1
        log.info("slack: the database is back: %s events that waited for it", taken)
