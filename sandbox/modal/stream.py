"""The standard input and output of a command in a Modal sandbox as a byte stream."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import grpclib
import grpclib.exceptions
import modal.exception

from core.tasks import spawn

UNSENT_BYTES_MAX = 512 * 1024
PIECE_BYTES = 1024 * 1024
CLOSE_SECONDS = 5.0
BROKEN = (
    modal.exception.Error,
    grpclib.GRPCError,
    grpclib.exceptions.StreamTerminatedError,
    OSError,
)
"""What the SDK raises when a stream is cut."""

log = logging.getLogger(__name__)


class _Drain(Protocol):
    async def aio(self) -> None: ...


class Input(Protocol):
    """What is used of the SDK's writer."""

    def write(self, _bytes: bytes, /) -> None: ...
    def write_eof(self) -> None: ...

    @property
    def drain(self) -> _Drain: ...


class OutputReader:
    """Satisfies `sandbox.client.connection.ByteReader`. Takes no more from the network than it is asked for."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._received = bytearray()

    async def readexactly(self, count: int) -> bytes:
        """Raises IncompleteReadError at the end, OSError where the stream is cut."""
        while len(self._received) < count:
            try:
                self._received += await anext(self._pieces)
            except StopAsyncIteration:
                raise asyncio.IncompleteReadError(bytes(self._received), count) from None
            except BROKEN as error:
                raise OSError(f"{type(error).__name__}: {error}") from error
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


class InputWriter:
    """Satisfies `sandbox.client.connection.ByteWriter`. One call at a time carries all that was written meanwhile.

    `ended` returns when the program that reads it has ended.
    """

    def __init__(self, stdin: Input, ended: Callable[[], Awaitable[object]], *, label: str) -> None:
        self._stdin = stdin
        self._ended = ended
        self._unsent = bytearray()
        self._is_closing = False
        self._problem: str | None = None
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()
        self._pump = spawn(self._send(), name=f"input of sandbox {label}")

    def write(self, content: bytes) -> None:
        if not self._is_closing:
            self._unsent += content
            self._changed.set()

    async def drain(self) -> None:
        """Waits while much is unsent. Raises OSError where the stream is cut."""
        while len(self._unsent) > UNSENT_BYTES_MAX and not self._pump.done():
            self._sent.clear()
            await self._sent.wait()
        if self._problem is not None:
            raise OSError(self._problem)

    def close(self) -> None:
        """The program inside ends when its input does."""
        self._is_closing = True
        self._changed.set()

    async def wait_closed(self) -> None:
        """What the program inside tidies up at its end is not to be in a snapshot."""
        with suppress(TimeoutError, *BROKEN):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wait([self._pump])
                if self._problem is None:
                    await self._ended()
        self._pump.cancel()

    async def _send(self) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._unsent:
                    piece = bytes(self._unsent[:PIECE_BYTES])
                    del self._unsent[:PIECE_BYTES]
                    self._stdin.write(piece)
                    await self._stdin.drain.aio()
                    self._sent.set()
                if self._is_closing:
                    self._stdin.write_eof()
                    await self._stdin.drain.aio()
                    return
        except BROKEN as error:
            self._problem = f"{type(error).__name__}: {error}"
            self._unsent.clear()
        finally:
            self._sent.set()
