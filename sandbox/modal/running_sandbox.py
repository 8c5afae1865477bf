"""One running Modal sandbox, and its standard input and output as the byte stream to the program inside."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, cast

import modal

from core.failpoints import Failpoint
from core.tasks import spawn
from sandbox.client.connection import Connection
from sandbox.modal.account import SDK_ERRORS
from sandbox.modal.config import ModalConfig
from sandbox.modal.image import BROWSER_PLACES, WORKSPACE
from sandbox.packed_program import HAS_PROGRAM, packed_program

UNSENT_BYTES_MAX = 512 * 1024
PIECE_BYTES = 1024 * 1024
CLOSE_SECONDS = 5.0

log = logging.getLogger(__name__)


class _Drain(Protocol):
    async def aio(self) -> None: ...


class SdkInput(Protocol):
    """The part of the SDK's writer that is used."""

    def write(self, _bytes: bytes, /) -> None: ...
    def write_eof(self) -> None: ...

    @property
    def drain(self) -> _Drain: ...


class OutputReader:
    """Satisfies `sandbox.client.connection.ByteReader`. Reads no more from the network than requested."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._received = bytearray()

    async def readexactly(self, count: int) -> bytes:
        """Raises IncompleteReadError at the end, OSError if the stream breaks."""
        while len(self._received) < count:
            try:
                self._received += await anext(self._pieces)
            except StopAsyncIteration:
                raise asyncio.IncompleteReadError(bytes(self._received), count) from None
            except SDK_ERRORS as error:
                raise OSError(f"{type(error).__name__}: {error}") from error
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


class StartReader:
    """Reads whether the sandbox has the program, before the program's own output, and calls `send` if it has not."""

    def __init__(self, reader: OutputReader, send: Callable[[], None]) -> None:
        self._reader = reader
        self._send: Callable[[], None] | None = send

    async def readexactly(self, count: int) -> bytes:
        if (send := self._send) is not None:
            self._send = None
            if await self._reader.readexactly(1) != HAS_PROGRAM:
                send()
        return await self._reader.readexactly(count)


class InputWriter:
    """Satisfies `sandbox.client.connection.ByteWriter`. Sends everything written so far with one SDK call at a time.

    `ended` returns when the program that reads the input has ended."""

    def __init__(self, stdin: SdkInput, ended: Callable[[], Awaitable[object]], *, label: str) -> None:
        self._stdin = stdin
        self._ended = ended
        self._unsent = bytearray()
        self._is_closing = False
        self._error: str | None = None
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()
        self._pump = spawn(self._send(), name=f"input of sandbox {label}")

    def write(self, content: bytes) -> None:
        if not self._is_closing:
            self._unsent += content
            self._changed.set()

    async def drain(self) -> None:
        """Waits while much is unsent. Raises OSError if the stream is broken."""
        while len(self._unsent) > UNSENT_BYTES_MAX and not self._pump.done():
            self._sent.clear()
            await self._sent.wait()
        if self._error is not None:
            raise OSError(self._error)

    def close(self) -> None:
        """The program inside ends when its input does."""
        self._is_closing = True
        self._changed.set()

    async def wait_closed(self) -> None:
        """Waits until the program inside has removed its temporary files, which must not be in a snapshot."""
        with suppress(*SDK_ERRORS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wait([self._pump])
                if self._error is None:
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
        except SDK_ERRORS as error:
            self._error = f"{type(error).__name__}: {error}"
            self._unsent.clear()
        finally:
            self._sent.set()


EXEC = Failpoint("modal.exec")


class ModalRunningSandbox:
    """`on_stop` receives the sandbox, and whether the connection was lost before the stop."""

    def __init__(
        self,
        sandbox: modal.Sandbox,
        connection: Connection,
        *,
        thread_id: str,
        created_at: float,
        on_stop: Callable[["ModalRunningSandbox", bool], Awaitable[None]],
    ) -> None:
        self.sandbox = sandbox
        self.thread_id = thread_id
        self.created_at = created_at
        self._connection = connection
        self._save_and_terminate = on_stop
        self._is_stopped = False
        self.is_remote = False  # each process has a connection of its own to it

    @property
    def connection(self) -> Connection:
        return self._connection

    async def on_hello(self) -> None:
        """The provider has waited for the hello."""

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        was_lost = self._connection.is_lost
        await self._connection.close()
        try:
            await self._save_and_terminate(self, was_lost)
        finally:
            await self.sandbox.detach.aio()  # pyright: ignore[reportUnknownMemberType] - the SDK leaves a type out


async def connect_program(sandbox: modal.Sandbox, plan: ModalConfig, *, label: str) -> Connection:
    """Starts the program inside and returns the connection to it. Raises the SDK's errors."""
    packed = await asyncio.to_thread(packed_program)
    command = packed.command(
        {
            "limits": plan.rlimits(),
            "command_seconds_max": plan.limits.command_seconds,
            "silence_seconds_max": plan.silence_seconds,
            "browser_places": BROWSER_PLACES,
        },
        asks=True,
    )
    with EXEC:
        process = await sandbox.exec.aio(*command, workdir=WORKSPACE, text=False, bufsize=-1)
    reader = OutputReader(cast("AsyncIterator[bytes]", aiter(process.stdout)))
    writer = InputWriter(cast("SdkInput", process.stdin), process.wait.aio, label=label)
    # nothing else is written before the program's hello
    return Connection(StartReader(reader, partial(writer.write, packed.content)), writer, label=label)
