"""Stores how far the messages of each channel were received, for all channels at once."""

import asyncio
import logging

from core.domain.errors import StorageUnavailable
from core.stores import InboundCursors
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 2.0


class CursorWriter:
    """Writes cursors in the background: the first immediately, then all newer ones together every INTERVAL_SECONDS.

    A stored cursor may be older than the newest received message. After a crash, the messages in between are read
    again, and their dedupe keys prevent a second effect."""

    def __init__(self, store: InboundCursors, platform: str) -> None:
        self._store = store
        self._platform = platform
        self._pending: dict[str, str] = {}
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def advance(self, scope: str, cursor: str) -> None:
        """Schedules the cursor to be stored. It must not be older than the cursor of an earlier call for the same
        scope."""
        self._pending[scope] = cursor
        if self._writing is None or self._writing.done():
            self._writing = spawn(self._write_until_idle(), name=f"{self._platform} cursors")

    async def flush(self) -> None:
        """Stores the pending cursors and waits until they are stored. Failures are only logged."""
        if self._writing is not None:
            await cancel(self._writing)
        async with self._lock:  # another call of `flush` may be storing the same cursors
            await self._write()

    async def _write_until_idle(self) -> None:
        while self._pending:
            await self._write()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _write(self) -> None:
        cursors, self._pending = self._pending, {}
        is_stored = False
        try:
            if cursors:
                await self._store.advance_cursors(self._platform, cursors)
            is_stored = True
        except StorageUnavailable as error:
            log.info("%s: how far the channels were received is not stored yet: %s", self._platform, error)
        finally:
            if not is_stored:
                self._pending = cursors | self._pending
