"""A run's events from any place on: the stored ones, then the live ones, each once and in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from core.events import Cursor, RunEvent, is_terminal
from core.ports import EventBus
from core.stores import Conversations
from core.tasks import cancel, spawn

RECHECK_SECONDS = 5.0
"""After that much silence the store is read again: a bus may lose events, and some runs end without a word on it."""


async def follow(
    run_id: str,
    after: Cursor | None,
    *,
    conversations: Conversations,
    bus: EventBus,
    recheck_seconds: float = RECHECK_SECONDS,
) -> AsyncGenerator[RunEvent, None]:
    """Yields everything after the cursor up to the terminal event, and then ends.

    Ends without one where the run is unknown, or over with its events deleted. Chunks come only while they are new;
    one that lies before an event already yielded is dropped. Close the generator when you leave it early.
    """
    last = after or Cursor(0, 0)
    while True:
        async with bus.subscribe(run_id) as live, _Arriving(live) as arriving:
            async for event in _heard(run_id, last, conversations, arriving, recheck_seconds):
                if event.cursor <= last:
                    continue
                last = event.cursor
                yield event
                if is_terminal(event.event):
                    return
            if not arriving.has_ended:
                return


async def _heard(
    run_id: str,
    last: Cursor,
    conversations: Conversations,
    arriving: "_Arriving",
    silence_seconds: float,
) -> AsyncGenerator[RunEvent, None]:
    """Stored events, then live ones, which may repeat them; after silence the store again.

    Ends when the bus ends, or when the run is over and all that is stored was told.
    """
    while not arriving.has_ended:
        is_over = await _is_over(run_id, conversations)
        for event in await conversations.events(run_id, after=last):
            last = event.cursor
            yield event
        if is_over:
            return
        while (event := await arriving.next(silence_seconds)) is not None:
            last = max(last, event.cursor)
            yield event


async def _is_over(run_id: str, conversations: Conversations) -> bool:
    """Asked before the events are read: those of a run that is over by then are all there."""
    run = await conversations.run(run_id)
    return run is None or run.status not in ("queued", "running")


class _Arriving:
    """Waits for the next live event without losing it where the wait is given up."""

    def __init__(self, live: AsyncIterator[RunEvent]) -> None:
        self._live = live
        self._waiting: asyncio.Task[RunEvent | None] | None = None
        self.has_ended = False

    async def __aenter__(self) -> "_Arriving":
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._waiting is not None:
            await cancel(self._waiting)

    async def next(self, silence_seconds: float) -> RunEvent | None:
        if self._waiting is None:
            self._waiting = spawn(self._one(), name="next live event")
        await asyncio.wait([self._waiting], timeout=silence_seconds)
        if not self._waiting.done():
            return None
        event = self._waiting.result()
        self._waiting = None
        self.has_ended = event is None
        return event

    async def _one(self) -> RunEvent | None:
        return await anext(self._live, None)
