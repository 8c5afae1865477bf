"""One call to the program inside the sandbox: its pending answer, its byte stream, and the validation of what is
received."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from core.domain.errors import FileChanged, FileMissing, LeaseLost, ToolError
from core.domain.json import JsonObject
from sandbox.inside import protocol


class PendingCall:
    """A call that waits for its answer, with the data received and the credit left."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self.pieces: deque[bytes] = deque()
        self.pieces_bytes = 0
        self.unacknowledged_bytes = 0
        self.accepts_data = False
        self.is_housekeeping = False
        self.credit = protocol.WINDOW_BYTES
        self.changed = asyncio.Event()


def add_credit(call: PendingCall, payload: bytes) -> None:
    if len(payload) != protocol.CREDIT_AMOUNT.size:
        raise ValueError("a credit of a wrong size")
    amount: int = protocol.CREDIT_AMOUNT.unpack(payload)[0]
    call.credit = min(call.credit + amount, protocol.WINDOW_BYTES)


def parse_json_object(payload: bytes) -> JsonObject:
    value: object = json.loads(payload)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast("JsonObject", value)


def parse_error(body: JsonObject) -> ToolError | LeaseLost:
    message = body.get("message")
    if not isinstance(message, str):
        raise ValueError("an error without a message")
    if body.get("code") == "stale":
        return LeaseLost("another run uses this sandbox")
    kind = {"changed": FileChanged, "missing": FileMissing}.get(str(body.get("code")), ToolError)
    return kind(replace_surrogates(message)[:2000])


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which databases and networks reject."""
    return text.encode("utf-8", "replace").decode()


WRITE_BYTES_MAX = 32 * 1024


@dataclass(slots=True)
class CallStream:
    """A call as a byte stream in both directions. `close` cancels the call. Reads wait without a limit, writes wait for
    credit.

    `grant_credit` reports to the other side that its data was consumed. `send` sends a piece and returns False if the
    call has ended."""

    flow: PendingCall
    grant_credit: Callable[[int], None]
    send: Callable[[bytes], Awaitable[bool]]
    forget: Callable[[], None]
    _read: bytearray = field(default_factory=bytearray)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def readexactly(self, count: int) -> bytes:
        """Raises IncompleteReadError at the end of the stream, ToolError if the other side refuses, and
        SandboxUnavailable."""
        while len(self._read) < count:
            if not self.flow.pieces:
                if self.flow.answer.done():
                    self.flow.answer.result()
                    raise asyncio.IncompleteReadError(bytes(self._read), count)
                self.flow.changed.clear()
                await self.flow.changed.wait()
                continue
            piece = self.flow.pieces.popleft()
            self.flow.pieces_bytes -= len(piece)
            self._read += piece
            self.grant_credit(len(piece))
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    async def read(self, count_max: int) -> bytes:
        """Returns the next bytes as soon as there are any, or nothing at the end of the stream. Raises ToolError and
        SandboxUnavailable."""
        try:
            first = await self.readexactly(1)
        except asyncio.IncompleteReadError:
            return b""
        rest = bytes(self._read[: count_max - 1])
        del self._read[: count_max - 1]
        return first + rest

    async def write(self, content: bytes) -> None:
        """Sends bytes to the call. Raises BrokenPipeError when the call has ended."""
        async with self._writing:
            for start in range(0, len(content), WRITE_BYTES_MAX):
                if not await self.send(content[start : start + WRITE_BYTES_MAX]):
                    raise BrokenPipeError("the call has ended")

    def close(self) -> None:
        self.forget()
