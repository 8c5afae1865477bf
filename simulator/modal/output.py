"""What a command prints, kept as long as a reader may come back for it."""

import asyncio
import os
from collections.abc import AsyncGenerator

PIECE_BYTES = 64 * 1024
UNREAD_BYTES_MAX = 4 * 1024 * 1024
KEPT_BYTES = 1024 * 1024


async def ready_to_read(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def ready_to_write(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


class Output:
    """One stream of a command. A reader that breaks off may go on a little before where it was."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = bytearray()
        self._kept_from = 0
        self._read_to = 0
        self._is_over = False
        self._changed = asyncio.Event()

    async def pump(self) -> None:
        """Takes what is printed until the stream ends; a command that prints faster than it is read has to wait."""
        try:
            while piece := await self._piece():
                self._kept += piece
                self._tell()
                while self._kept_from + len(self._kept) - self._read_to > UNREAD_BYTES_MAX:
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            os.close(self._descriptor)
            self._is_over = True
            self._tell()

    async def follow(self, offset: int) -> AsyncGenerator[bytes, None]:
        """All from the offset on, as it comes, to the end."""
        while True:
            start = offset - self._kept_from
            if start < 0:
                raise ValueError("what was printed there is not kept any more")
            piece = bytes(self._kept[start : start + PIECE_BYTES])
            if piece:
                yield piece
                offset += len(piece)
                self._read_to = max(self._read_to, offset)
                surplus = self._read_to - KEPT_BYTES - self._kept_from
                if surplus > KEPT_BYTES:
                    del self._kept[:surplus]
                    self._kept_from += surplus
                self._tell()
            elif self._is_over:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _piece(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:
                await ready_to_read(self._descriptor)
            except OSError:
                return b""  # the terminal's other end is gone

    def _tell(self) -> None:
        self._changed.set()
