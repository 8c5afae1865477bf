"""The event bus of a single process, and the reader of a subscription."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from core.domain.events import RunEvent


class EventReader:
    """Iterates over the events it was offered. With more than `lag_max` unread events it is cut off and ends after
    them."""

    def __init__(self, lag_max: int) -> None:
        self._unread: deque[RunEvent] = deque()
        self._lag_max = lag_max
        self._is_cut_off = False
        self._something = asyncio.Event()

    def offer(self, event: RunEvent) -> None:
        if len(self._unread) >= self._lag_max:
            self._is_cut_off = True
        if not self._is_cut_off:
            self._unread.append(event)
        self._something.set()

    def cut_off(self) -> None:
        """Ends the iteration after the unread events, because later ones may be missing."""
        self._is_cut_off = True
        self._something.set()

    def __aiter__(self) -> "EventReader":
        return self

    async def __anext__(self) -> RunEvent:
        while not self._unread:
            if self._is_cut_off:
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
        return self._unread.popleft()


class MemoryEventBus:
    """`core.ports.EventBus`. A reader with `lag_max` unread events gets no more and ends after those."""

    def __init__(self, *, lag_max: int = 1000) -> None:
        self._lag_max = lag_max
        self._readers: dict[str, set[EventReader]] = {}

    async def publish(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            for reader in self._readers.get(event.run_id, ()):
                reader.offer(event)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent], None]:
        reader = EventReader(self._lag_max)
        self._readers.setdefault(run_id, set()).add(reader)
        try:
            yield reader
        finally:
            readers = self._readers[run_id]
            readers.discard(reader)
            if not readers:
                del self._readers[run_id]
