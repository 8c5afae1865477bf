"""The event bus of a single process."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from core.domain.events import RunEvent
from storage.memory.reader import Reader


class MemoryEventBus:
    """`core.ports.EventBus`. A reader that leaves `lag_max` events unread is cut off after those it has."""

    def __init__(self, *, lag_max: int = 1000) -> None:
        self._lag_max = lag_max
        self._readers: dict[str, set[Reader]] = {}

    async def publish(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            for reader in self._readers.get(event.run_id, ()):
                reader.offer(event)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent], None]:
        reader = Reader(self._lag_max)
        self._readers.setdefault(run_id, set()).add(reader)
        try:
            yield reader
        finally:
            readers = self._readers[run_id]
            readers.discard(reader)
            if not readers:
                del self._readers[run_id]
