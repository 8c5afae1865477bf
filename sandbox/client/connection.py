"""The host's end of the byte stream to the program inside; all that comes from there is checked as hostile."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Protocol

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.messages import JsonObject
from core.tasks import cancel, spawn
from sandbox.client.call import CallStream, PendingCall, add_credit, parse_error, parse_json_object
from sandbox.inside import protocol

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


class Connection:
    """Calls of one program inside. Every call raises SandboxUnavailable once the stream has ended or broken a rule."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, *, label: str) -> None:
        self._reader = reader
        self._writer = writer
        self._label = label
        self._calls: dict[int, PendingCall] = {}
        self._relayed: dict[int, Callable[[int, bytes], None]] = {}
        self._last_channel = 0
        self._lost_because: str | None = None
        self.was_noticed = False
        """Whether somebody was told of the loss."""
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pump = spawn(self._receive(), name=f"sandbox {label}")

    @property
    def is_lost(self) -> bool:
        return self._lost_because is not None

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._calls or self._relayed)

    async def wait_for_hello(self, seconds: float) -> None:
        """Returns when the program inside has spoken. Raises SandboxUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                await self._hello
        except TimeoutError:
            self.lose(f"no hello within {seconds} s")
            raise self._lost() from None

    def greet(self, fence: int) -> None:
        hello = {"protocol": protocol.PROTOCOL_VERSION, "fence": fence}
        self._writer.write(protocol.encode_json_frame(protocol.HELLO, 0, hello))

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
                for start in range(0, len(piece), protocol.DATA_BYTES_MAX):
                    part = piece[start : start + protocol.DATA_BYTES_MAX]
                    if not await self._send_part(channel, call, op, part):
                        return call.answer.result()
            self._writer.write(protocol.encode_frame(protocol.END, channel))
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call.answer
        except TimeoutError:
            self.lose(f"no answer to {op}")
            raise self._lost() from None
        finally:
            self._forget(channel, call)

    def relay(self, opening: bytes, deliver: Callable[[int, bytes], None]) -> int:
        """Opens a call for another process and answers its channel. `deliver` gets its frames, and a CANCEL where no
        more will come. Raises SandboxUnavailable."""
        if self._lost_because is not None:
            raise self._lost()
        self._last_channel += 1
        self._relayed[self._last_channel] = deliver
        self._writer.write(protocol.encode_frame(protocol.OPEN, self._last_channel, opening))
        return self._last_channel

    def pass_on(self, kind: int, channel: int, payload: bytes) -> None:
        """A later frame of a relayed call."""
        if self._lost_because is None and channel in self._relayed:
            self._writer.write(protocol.encode_frame(kind, channel, payload))

    def end_relay(self, channel: int) -> None:
        self._relayed.pop(channel, None)

    def lose(self, reason: str) -> None:
        """Ends all calls that wait; the stream is closed."""
        if self._lost_because is not None:
            return
        self._lost_because = reason
        self.was_noticed = self.is_busy
        self._writer.close()
        if not self._hello.done():
            self._hello.set_exception(self._lost())
            self._hello.exception()  # whoever waits gets it; nobody need wait
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(self._lost())
                call.answer.exception()
            call.changed.set()
        for deliver in tuple(self._relayed.values()):
            deliver(protocol.CANCEL, b"")

    async def close(self) -> None:
        self.lose("closed")
        await cancel(self._pump)
        try:
            await self._writer.wait_closed()
        except OSError:
            log.debug("the stream of sandbox %s was cut", self._label)

    def _lost(self) -> SandboxUnavailable:
        self.was_noticed = True
        return SandboxUnavailable(LOST, detail=f"{self._label}: {self._lost_because}")

    def _open(
        self, op: str, fields: dict[str, object], *, takes_data: bool = False
    ) -> tuple[int, PendingCall]:
        if self._lost_because is not None:
            raise self._lost()
        try:
            frame = protocol.encode_json_frame(
                protocol.OPEN, self._last_channel + 1, {"op": op, **fields}
            )
        except ValueError as error:
            raise ToolError("That is too long for one call; put it in a file first.") from error
        self._last_channel += 1
        call = self._calls[self._last_channel] = PendingCall()
        call.takes_data = takes_data
        self._writer.write(frame)
        return self._last_channel, call

    def _forget(self, channel: int, call: PendingCall) -> None:
        self._calls.pop(channel, None)
        if not call.answer.done():
            call.answer.cancel()
            if self._lost_because is None:
                self._writer.write(protocol.encode_frame(protocol.CANCEL, channel))
        elif not call.answer.cancelled():
            call.answer.exception()

    def _pay(self, channel: int, amount: int) -> None:
        """In large amounts, far below the window: a credit for each small piece would be more than the piece, and
        would pile up here where the program inside does not read."""
        call = self._calls.get(channel)
        if self._lost_because is not None or call is None:
            return
        call.owed_bytes += amount
        if call.owed_bytes >= protocol.DATA_BYTES_MAX:
            credit = protocol.CREDIT_AMOUNT.pack(call.owed_bytes)
            call.owed_bytes = 0
            self._writer.write(protocol.encode_frame(protocol.CREDIT, channel, credit))

    async def _send_part(self, channel: int, call: PendingCall, op: str, part: bytes) -> bool:
        while call.credit < len(part) and not call.answer.done():
            await self._change(call, op)
        if call.answer.done():
            return False  # it was refused half-way
        call.credit -= len(part)
        self._writer.write(protocol.encode_frame(protocol.DATA, channel, part))
        try:
            await self._writer.drain()
        except OSError:
            self.lose("the stream was cut")
        return not call.answer.done()

    async def _change(self, call: PendingCall, op: str) -> None:
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
                header = await self._reader.readexactly(protocol.HEADER.size)
                length, kind, channel = protocol.HEADER.unpack(header)
                if length > protocol.payload_bytes_max(kind):
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
        if kind == protocol.HELLO:
            self._take_hello(payload)
            return
        if not 0 < channel <= self._last_channel:
            raise ValueError(f"channel {channel} was never opened")
        if (deliver := self._relayed.get(channel)) is not None:
            deliver(kind, payload)
            return
        call = self._calls.get(channel)
        if call is not None and not call.answer.done():  # else nobody waits for it any more
            self._take(call, kind, payload)

    def _take(self, call: PendingCall, kind: int, payload: bytes) -> None:
        if kind == protocol.RESULT:
            call.answer.set_result(parse_json_object(payload))
        elif kind == protocol.ERROR:
            call.answer.set_exception(parse_error(parse_json_object(payload)))
        elif kind == protocol.DATA:
            self._take_data(call, payload)
        elif kind == protocol.CREDIT:
            add_credit(call, payload)
        call.changed.set()

    def _take_hello(self, payload: bytes) -> None:
        hello = parse_json_object(payload)
        if hello.get("protocol") != protocol.PROTOCOL_VERSION:
            raise ValueError(f"protocol {str(hello.get('protocol'))[:40]}")
        if self._hello.done():
            raise ValueError("a second hello")
        self._hello.set_result(None)

    def _take_data(self, call: PendingCall, payload: bytes) -> None:
        call.pieces_bytes += len(payload)
        if not payload or not call.takes_data or call.pieces_bytes > protocol.WINDOW_BYTES:
            raise ValueError("data that was not asked for, or is none")
        call.pieces.append(payload)
