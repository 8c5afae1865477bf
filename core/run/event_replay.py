"""Streams a run's events from any cursor: first stored events, then live events, each exactly once and in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress

from core.domain.events import Cursor, RunEvent, is_terminal
from core.ports import EventBus
from core.stores import Conversations
from core.tasks import cancel, spawn

RECHECK_SECONDS = 5.0
"""After this many seconds without a live event, the store is read again, because the bus may lose events."""
GROUP_MAX = 32


async def follow_events(
    run_id: str,
    after: Cursor | None,
    *,
    conversations: Conversations,
    bus: EventBus,
    recheck_seconds: float = RECHECK_SECONDS,
    recheck: "Recheck | None" = None,
) -> AsyncGenerator[Sequence[RunEvent], None]:
    """Yields the run's events after the cursor, up to and including the terminal event, which is the last of its group.

    A group holds the events that have arrived together, because handling them one by one would cost more. Ends without
    a terminal event if the run is unknown, or if the run is over and its events were deleted. Text chunks are not
    stored, so only live chunks are yielded. Close the generator if you stop iterating early. A request through
    `recheck` makes it read the store at once."""
    last, recheck = after or Cursor(0, 0), recheck or Recheck()
    while True:
        async with bus.subscribe(run_id) as live, _Arriving(live, recheck) as arriving:
            async for group in _heard(run_id, last, conversations, arriving, recheck_seconds):
                events: list[RunEvent] = []
                for event in group:
                    if event.cursor > last:
                        last = event.cursor
                        events.append(event)
                if events:
                    yield events
                    if is_terminal(events[-1].event):
                        return
            if not arriving.has_ended:
                return


async def _heard(
    run_id: str, last: Cursor, conversations: Conversations, arriving: "_Arriving", silence_seconds: float
) -> AsyncGenerator[Sequence[RunEvent], None]:
    """Yields stored events, then live events, which may repeat stored ones. Reads the store again after a silence.

    Ends when the subscription ends, or when the run is over and every stored event was yielded.
    """
    while not arriving.has_ended:
        stored, is_over = await conversations.events_so_far(run_id, after=last)
        for start in range(0, len(stored), GROUP_MAX):
            last = stored[start : start + GROUP_MAX][-1].cursor
            yield stored[start : start + GROUP_MAX]
        if is_over:
            return
        while arrived := await arriving.next(silence_seconds):
            group: list[RunEvent] = []
            for event in arrived:
                if _leaves_a_gap(last, event.cursor):
                    missed = await conversations.events(run_id, after=last)
                    group += [one for one in missed if one.cursor < event.cursor]
                last = max(last, event.cursor)
                group.append(event)
            yield group


def _leaves_a_gap(last: Cursor, following: Cursor) -> bool:
    """Returns whether events may be missing between two cursors: lost by the bus, or published before subscribing."""
    if following.attempt > last.attempt:
        return (last, following) != (Cursor(0, 0), Cursor(1, 1))
    return following > Cursor(last.attempt, last.n + 1)


class Recheck:
    """Requests that the store is read at once, because events were stored without being published."""

    def __init__(self) -> None:
        self.is_due = False
        self.changed = asyncio.Event()

    def request(self) -> None:
        self.is_due = True
        self.changed.set()


class _Arriving:
    """Buffers live events, so that none is lost if waiting for the next event times out.

    One task reads events ahead, because creating a task per event costs more than handling the event.
    """

    def __init__(self, live: AsyncIterator[RunEvent], recheck: Recheck) -> None:
        self._live = live
        self._ahead: list[RunEvent] = []
        self._recheck = recheck
        self._changed = recheck.changed
        self._room = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "_Arriving":
        self._reading = spawn(self._read(), name="read live events")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._reading is not None:
            await cancel(self._reading)

    @property
    def has_ended(self) -> bool:
        return not self._ahead and (self._reading is None or self._reading.done())

    async def next(self, silence_seconds: float) -> Sequence[RunEvent]:
        """Returns the events that have arrived, or waits for some. Returns no events if none arrive in time, or if a
        recheck was requested."""
        if not self._ahead and not self.has_ended and not self._recheck.is_due:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(silence_seconds):
                    await self._changed.wait()
        if not self._ahead:
            self._recheck.is_due = False
            if self._reading is not None and self._reading.done():
                self._reading.result()
        self._room.set()
        arrived, self._ahead = self._ahead, []
        return arrived

    async def _read(self) -> None:
        try:
            async for event in self._live:
                self._ahead.append(event)
                self._changed.set()
                while len(self._ahead) >= GROUP_MAX:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._changed.set()
