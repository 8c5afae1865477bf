"""How many sandboxes start on this machine at the same time."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

PATIENCE_SECONDS = 1.0


class Turnstile:
    """Lets as many through at a time as there are `places`, in the order in which they came.

    Twenty that start together on two cores are all ready at the end; two by two each is, on average, in half the time,
    and works while the next ones start. Whoever has waited `patience_seconds` goes through all the same: a start that
    hangs holds nobody up for long.
    """

    def __init__(self, places: int, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._places = asyncio.Semaphore(places)
        self._patience_seconds = patience_seconds

    @asynccontextmanager
    async def passed(self) -> AsyncGenerator[None]:
        has_place = await self._place()
        try:
            yield
        finally:
            if has_place:
                self._places.release()

    async def _place(self) -> bool:
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await self._places.acquire()
        except TimeoutError:
            return False


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))
