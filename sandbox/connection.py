"""The host's end of the byte stream to the program inside; all that comes from there is checked as hostile."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Protocol, cast

from core.errors import LeaseLost, SandboxUnavailable, ToolError
from core.messages import JsonObject
from core.tasks import cancel, spawn
from sandbox.inside import frames
from sandbox.stream import CallStream

ANSWER_SECONDS = 30.0
LOST = "The sandbox stopped working. A new one starts with the same files."

log = logging.getLogger(__name__)


class ByteReader(Protocol):
    async def readexactly(self, _count: int, /) -> bytes: ...


class ByteWriter(Protocol):
    def write(self, _bytes: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


class _Call:
    def __init__(self) -> None:
        self.answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self.pieces: deque[bytes] = deque()
        self.pieces_bytes = 0
        self.takes_data = False
        self.credit = frames.WINDOW_BYTES
        self.changed = asyncio.Event()


class Connection:
    """Calls of one program inside. Every call raises SandboxUnavailable once the stream has ended or broken a rule."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, *, label: str) -> None:
        self._reader = reader
        self._writer = writer
        self._label = label
        self._calls: dict[int, _Call] = {}
        self._last_channel = 0
        self._lost_because: str | None = None
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pump = spawn(self._receive(), name=f"sandbox {label}")

    @property
    def is_lost(self) -> bool:
        return self._lost_because is not None

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._calls)

    async def wait_for_hello(self, seconds: float) -> None:
        """Returns when the program inside has spoken. Raises SandboxUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                await self._hello
        except TimeoutError:
            self.lose(f"no hello within {seconds} s")
            raise self._lost() from None

    def greet(self, fence: int) -> None:
        hello = {"protocol": frames.PROTOCOL, "fence": fence}
        self._writer.write(frames.encode_json(frames.HELLO, 0, hello))

    async def call(
        self, op: str, *, answer_seconds: float = ANSWER_SECONDS, **fields: object
    ) -> JsonObject:
        """Raises ToolError with the program's own text when it refuses, LeaseLost for a fence that is behind."""
        channel, call = self._open(op, fields)
        try:
            async with asyncio.timeout(answer_seconds):
                return await call.answer
        except TimeoutError:
            self.lose(f"no answer to {op} within {answer_seconds} s")
            raise self._lost() from None
        finally:
            self._forget(channel, call)

    async def receive_pieces(self, op: str, **fields: object) -> AsyncGenerator[bytes, None]:
        """Calls and yields the data that comes back."""
        channel, call = self._open(op, fields, takes_data=True)
        try:
            while True:
                while call.pieces:
                    piece = call.pieces.popleft()
                    yield piece
                    call.pieces_bytes -= len(piece)
                    self._pay(channel, len(piece))
                if call.answer.done():
                    call.answer.result()
                    return
                await self._change(call, op)
        finally:
            self._forget(channel, call)

    def stream(self, op: str, **fields: object) -> CallStream:
        """Calls; what is read and written then is the call's data. It must be closed."""
        channel, call = self._open(op, fields, takes_data=True)
        return CallStream(
            flow=call,
            pay=partial(self._pay, channel),
            send=partial(self._send_part, channel, call, op),
            forget=partial(self._forget, channel, call),
        )

    async def send_pieces(
        self, op: str, pieces: AsyncIterator[bytes], **fields: object
    ) -> JsonObject:
        """Calls, sends the data as fast as it is taken, and answers the result."""
        channel, call = self._open(op, fields)
        try:
            async for piece in pieces:
                for start in range(0, len(piece), frames.DATA_BYTES_MAX):
                    part = piece[start : start + frames.DATA_BYTES_MAX]
                    if not await self._send_part(channel, call, op, part):
                        return call.answer.result()
            self._writer.write(frames.encode(frames.END, channel))
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call.answer
        except TimeoutError:
            self.lose(f"no answer to {op}")
            raise self._lost() from None
        finally:
            self._forget(channel, call)

    def lose(self, reason: str) -> None:
        """Ends all calls that wait; the stream is closed."""
        if self._lost_because is not None:
            return
        self._lost_because = reason
        self._writer.close()
        if not self._hello.done():
            self._hello.set_exception(self._lost())
            self._hello.exception()  # whoever waits gets it; nobody need wait
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(self._lost())
                call.answer.exception()
            call.changed.set()

    async def close(self) -> None:
        self.lose("closed")
        await cancel(self._pump)
        try:
            await self._writer.wait_closed()
        except OSError:
            log.debug("the stream of sandbox %s was cut", self._label)

    def _lost(self) -> SandboxUnavailable:
        return SandboxUnavailable(LOST, detail=f"{self._label}: {self._lost_because}")

    def _open(
        self, op: str, fields: dict[str, object], *, takes_data: bool = False
    ) -> tuple[int, _Call]:
        if self._lost_because is not None:
            raise self._lost()
        try:
            frame = frames.encode_json(frames.OPEN, self._last_channel + 1, {"op": op, **fields})
        except ValueError as error:
            raise ToolError("That is too long for one call; put it in a file first.") from error
        self._last_channel += 1
        call = self._calls[self._last_channel] = _Call()
        call.takes_data = takes_data
        self._writer.write(frame)
        return self._last_channel, call

    def _forget(self, channel: int, call: _Call) -> None:
        self._calls.pop(channel, None)
        if not call.answer.done():
            call.answer.cancel()
            if self._lost_because is None:
                self._writer.write(frames.encode(frames.CANCEL, channel))
        elif not call.answer.cancelled():
            call.answer.exception()

    def _pay(self, channel: int, amount: int) -> None:
        if self._lost_because is None and channel in self._calls:
            credit = frames.CREDIT_AMOUNT.pack(amount)
            self._writer.write(frames.encode(frames.CREDIT, channel, credit))

    async def _send_part(self, channel: int, call: _Call, op: str, part: bytes) -> bool:
        while call.credit < len(part) and not call.answer.done():
            await self._change(call, op)
        if call.answer.done():
            return False  # it was refused half-way
        call.credit -= len(part)
        self._writer.write(frames.encode(frames.DATA, channel, part))
        try:
            await self._writer.drain()
        except OSError:
            self.lose("the stream was cut")
        return not call.answer.done()

    async def _change(self, call: _Call, op: str) -> None:
        call.changed.clear()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await call.changed.wait()
        except TimeoutError:
            self.lose(f"{op} stood still")
            raise self._lost() from None

    async def _receive(self) -> None:
        try:
            while True:
                header = await self._reader.readexactly(frames.HEADER.size)
                length, kind, channel = frames.HEADER.unpack(header)
                if length > frames.payload_bytes_max(kind):
                    self.lose(f"a frame of kind {kind} with {length} bytes")
                    return
                payload = await self._reader.readexactly(length) if length else b""
                self._frame(kind, channel, payload)
        except asyncio.IncompleteReadError:
            self.lose("the stream ended")
        except OSError as error:
            self.lose(f"the stream broke: {error}")
        except (ValueError, RecursionError) as error:
            self.lose(f"a malformed frame: {error}")

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            self._take_hello(payload)
            return
        if not 0 < channel <= self._last_channel:
            raise ValueError(f"channel {channel} was never opened")
        call = self._calls.get(channel)
        if call is None or call.answer.done():
            return  # nobody waits for it any more
        if kind == frames.RESULT:
            call.answer.set_result(as_object(payload))
        elif kind == frames.ERROR:
            call.answer.set_exception(_refusal(as_object(payload)))
        elif kind == frames.DATA:
            self._take_data(call, payload)
        elif kind == frames.CREDIT:
            _take_credit(call, payload)
        call.changed.set()

    def _take_hello(self, payload: bytes) -> None:
        hello = as_object(payload)
        if hello.get("protocol") != frames.PROTOCOL:
            raise ValueError(f"protocol {str(hello.get('protocol'))[:40]}")
        if not self._hello.done():
            self._hello.set_result(None)

    def _take_data(self, call: _Call, payload: bytes) -> None:
        call.pieces_bytes += len(payload)
        if not call.takes_data or call.pieces_bytes > frames.WINDOW_BYTES:
            raise ValueError("data that was not asked for")
        call.pieces.append(payload)


def _take_credit(call: _Call, payload: bytes) -> None:
    if len(payload) != frames.CREDIT_AMOUNT.size:
        raise ValueError("a credit of a wrong size")
    amount: int = frames.CREDIT_AMOUNT.unpack(payload)[0]
    call.credit = min(call.credit + amount, frames.WINDOW_BYTES)


def as_object(payload: bytes) -> JsonObject:
    value: object = json.loads(payload)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast("JsonObject", value)


def _refusal(body: JsonObject) -> ToolError | LeaseLost:
    message = body.get("message")
    if not isinstance(message, str):
        raise ValueError("an error without a message")
    if body.get("code") == "stale":
        return LeaseLost("another run uses this sandbox")
    return ToolError(plain(message)[:2000])


def plain(text: str) -> str:
    """Without lone surrogates, which no database or network takes."""
    return text.encode("utf-8", "replace").decode()
