"""One subscriber of an event bus, and what it has not read yet."""

import asyncio
from collections import deque

from core.domain.events import RunEvent


class Reader:
    """Iterates over the events it was offered. Over `lag_max` unread ones it is cut off: it ends after those it has."""

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
        """Nothing after what it has: something may be missing there."""
        self._is_cut_off = True
        self._something.set()

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> RunEvent:
        while not self._unread:
            if self._is_cut_off:
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
        return self._unread.popleft()
