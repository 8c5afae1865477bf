"""The host's end of the byte stream to the program inside. Everything received is validated as hostile input."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from itertools import count
from typing import Protocol

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.json import JsonObject
from core.tasks import cancel, spawn
from sandbox.client.call import CallStream, PendingCall, add_credit, parse_error, parse_json_object
from sandbox.inside import protocol

ANSWER_SECONDS = 30.0
FRAMES_AT_ONCE_MAX = 256
"""After this many frames, other tasks get their turn, because reading from a full buffer never waits."""
LOST = "The sandbox stopped working, and everything that ran in it ended. The next call opens it again."

log = logging.getLogger(__name__)


class ByteReader(Protocol):
    async def readexactly(self, _count: int, /) -> bytes: ...


class ByteWriter(Protocol):
    def write(self, _bytes: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


class Connection:
    """Calls one program inside.

    Every call raises SandboxUnavailable once the stream has ended or violated the protocol."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, *, label: str) -> None:
        self._reader = reader
        self._writer = writer
        self._label = label
        self._calls: dict[int, PendingCall] = {}
        self._relayed: dict[int, Callable[[int, bytes], None]] = {}
        self._holders: set[object] = set()
        self._last_channel = 0
        self._lost_because: str | None = None
        self._lost_message = LOST
        self.loss_was_reported = False
        """True once a caller that reports the error to users or the model has received it."""
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pump = spawn(self._receive(), name=f"sandbox {label}")

    @property
    def is_lost(self) -> bool:
        return self._lost_because is not None

    @property
    def is_busy(self) -> bool:
        """Whether a call is pending."""
        return bool(self._calls or self._relayed)

    @property
    def is_held(self) -> bool:
        """Whether a run of another process uses the sandbox."""
        return bool(self._holders)

    def hold(self, holder: object, *, is_held: bool) -> None:
        """Records whether the run of another process, which `holder` stands for, uses the sandbox."""
        (self._holders.add if is_held else self._holders.discard)(holder)

    async def wait_for_hello(self, seconds: float) -> None:
        """Waits for the hello of the program inside. Raises SandboxUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                await self._hello
        except TimeoutError:
            self.mark_lost(f"no hello within {seconds} s")
            raise self._lost() from None

    def send_hello(self, fence: int) -> None:
        hello = {"protocol": protocol.PROTOCOL_VERSION, "fence": fence}
        self._writer.write(protocol.encode_json_frame(protocol.HELLO, 0, hello))

    async def call(
        self, op: str, *, answer_seconds: float = ANSWER_SECONDS, is_housekeeping: bool = False, **fields: object
    ) -> JsonObject:
        """Calls the program inside and returns its result. Raises ToolError with the program's message if it refuses,
        and LeaseLost if the fence is stale. With `is_housekeeping`, a loss of the sandbox does not count as
        reported."""
        channel, call = self._open(op, fields)
        call.is_housekeeping = is_housekeeping
        try:
            async with asyncio.timeout(answer_seconds):
                return await call.answer
        except TimeoutError:
            self.mark_lost(f"no answer to {op} within {answer_seconds} s")
            raise self._lost(is_reported=not is_housekeeping) from None
        finally:
            self._forget(channel, call)

    async def receive_pieces(self, op: str, **fields: object) -> AsyncGenerator[bytes, None]:
        """Starts a call and yields the data that it returns."""
        channel, call = self._open(op, fields, accepts_data=True)
        try:
            while True:
                while call.pieces:
                    piece = call.pieces.popleft()
                    yield piece
                    call.pieces_bytes -= len(piece)
                    self._grant_credit(channel, len(piece))
                if call.answer.done():
                    call.answer.result()
                    return
                await self._change(call, op, ANSWER_SECONDS)
        finally:
            self._forget(channel, call)

    def stream(self, op: str, **fields: object) -> CallStream:
        """Starts a call whose data is read and written as a stream. The caller must close the stream."""
        channel, call = self._open(op, fields, accepts_data=True)
        return CallStream(
            flow=call,
            grant_credit=partial(self._grant_credit, channel),
            send=partial(self._send_part, channel, call, op),
            forget=partial(self._forget, channel, call),
        )

    async def send_pieces(self, op: str, pieces: AsyncIterator[bytes], **fields: object) -> JsonObject:
        """Starts a call, sends the data as fast as the program inside accepts it, and returns the result."""
        channel, call = self._open(op, fields)
        try:
            async for piece in pieces:
                for start in range(0, len(piece), protocol.DATA_BYTES_MAX):
                    if not await self._send_part(channel, call, op, piece[start : start + protocol.DATA_BYTES_MAX]):
                        return call.answer.result()
            self._writer.write(protocol.encode_frame(protocol.END, channel))
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call.answer
        except TimeoutError:
            self.mark_lost(f"no answer to {op}")
            raise self._lost() from None
        finally:
            self._forget(channel, call)

    def open_call_for_process(self, opening: bytes, deliver: Callable[[int, bytes], None]) -> int:
        """Opens a call on behalf of another process and returns its channel. `deliver` receives its frames, and a
        CANCEL when no more will follow. Raises SandboxUnavailable."""
        if self._lost_because is not None:
            raise self._lost()
        self._last_channel += 1
        self._relayed[self._last_channel] = deliver
        self._writer.write(protocol.encode_frame(protocol.OPEN, self._last_channel, opening))
        return self._last_channel

    def forward_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """Forwards a later frame of a relayed call."""
        if self._lost_because is None and channel in self._relayed:
            self._writer.write(protocol.encode_frame(kind, channel, payload))

    def end_relayed_call(self, channel: int) -> None:
        self._relayed.pop(channel, None)

    def mark_lost(self, reason: str, *, public_message: str = LOST) -> None:
        """Fails all pending calls and closes the stream."""
        if self._lost_because is not None:
            return
        self._lost_because, self._lost_message = reason, public_message
        # and if a call below still waits; other processes report the loss of their calls, but not another message
        self.loss_was_reported = bool(self._relayed) and public_message == LOST
        self._writer.close()
        if not self._hello.done():
            self._hello.set_exception(self._lost())
            self._hello.exception()  # marks it as retrieved: no one may be waiting
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(self._lost(is_reported=not call.is_housekeeping))
                call.answer.exception()
            call.changed.set()
        for deliver in tuple(self._relayed.values()):
            deliver(protocol.CANCEL, b"")

    async def close(self) -> None:
        self.mark_lost("closed")
        await cancel(self._pump)
        try:
            await self._writer.wait_closed()
        except OSError:
            log.debug("the stream of sandbox %s was cut", self._label)

    def _lost(self, *, is_reported: bool = True) -> SandboxUnavailable:
        self.loss_was_reported = self.loss_was_reported or is_reported
        return SandboxUnavailable(self._lost_message, detail=f"{self._label}: {self._lost_because}")

    def _open(self, op: str, fields: dict[str, object], *, accepts_data: bool = False) -> tuple[int, PendingCall]:
        if self._lost_because is not None:
            raise self._lost()
        try:
            frame = protocol.encode_json_frame(protocol.OPEN, self._last_channel + 1, {"op": op, **fields})
        except ValueError as error:
            raise ToolError("That is too long for one call; put it in a file first.") from error
        self._last_channel += 1
        call = self._calls[self._last_channel] = PendingCall()
        call.accepts_data = accepts_data
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

    def _grant_credit(self, channel: int, amount: int) -> None:
        """Grants credit in large amounts, far below the window. A credit for each small piece would be larger than
        the piece, and would pile up here while the program inside does not read."""
        call = self._calls.get(channel)
        if self._lost_because is not None or call is None:
            return
        call.unacknowledged_bytes += amount
        if call.unacknowledged_bytes >= protocol.DATA_BYTES_MAX:
            credit = protocol.CREDIT_AMOUNT.pack(call.unacknowledged_bytes)
            call.unacknowledged_bytes = 0
            self._writer.write(protocol.encode_frame(protocol.CREDIT, channel, credit))

    async def _send_part(self, channel: int, call: PendingCall, op: str, part: bytes) -> bool:
        while call.credit < len(part) and not call.answer.done():
            # a program at the end of a stream may read slowly
            await self._change(call, op, None if call.accepts_data else ANSWER_SECONDS)
        if call.answer.done():
            return False  # refused before all data was sent
        call.credit -= len(part)
        self._writer.write(protocol.encode_frame(protocol.DATA, channel, part))
        try:
            await self._writer.drain()
        except OSError:
            self.mark_lost("the stream was cut")
        return not call.answer.done()

    async def _change(self, call: PendingCall, op: str, seconds: float | None) -> None:
        call.changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await call.changed.wait()
        except TimeoutError:
            self.mark_lost(f"{op} stood still")
            raise self._lost() from None

    async def _receive(self) -> None:
        try:
            for number in count(1):
                if number % FRAMES_AT_ONCE_MAX == 0:
                    await asyncio.sleep(0)
                header = await self._reader.readexactly(protocol.HEADER.size)
                length, kind, channel = protocol.HEADER.unpack(header)
                if length > protocol.payload_bytes_max(kind):
                    self.mark_lost(f"a frame of kind {kind} with {length} bytes")
                    return
                payload = await self._reader.readexactly(length) if length else b""
                self._frame(kind, channel, payload)
        except asyncio.IncompleteReadError:
            self.mark_lost("the stream ended")
        except OSError as error:
            self.mark_lost(f"the stream broke: {error}")
        except (ValueError, RecursionError) as error:
            self.mark_lost(f"a malformed frame: {error}")

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == protocol.HELLO:
            hello = parse_json_object(payload)
            if hello.get("protocol") != protocol.PROTOCOL_VERSION:
                raise ValueError(f"protocol {str(hello.get('protocol'))[:40]}")
            if self._hello.done():
                raise ValueError("a second hello")
            self._hello.set_result(None)
            return
        if not 0 < channel <= self._last_channel:
            raise ValueError(f"channel {channel} was never opened")
        if (deliver := self._relayed.get(channel)) is not None:
            deliver(kind, payload)
            return
        call = self._calls.get(channel)
        if call is not None and not call.answer.done():  # otherwise the caller no longer waits
            if kind == protocol.RESULT:
                call.answer.set_result(parse_json_object(payload))
            elif kind == protocol.ERROR:
                call.answer.set_exception(parse_error(parse_json_object(payload)))
            elif kind == protocol.DATA:
                call.pieces_bytes += len(payload)
                if not payload or not call.accepts_data or call.pieces_bytes > protocol.WINDOW_BYTES:
                    raise ValueError("data that was not requested, or is empty")
                call.pieces.append(payload)
            elif kind == protocol.CREDIT:
                add_credit(call, payload)
            call.changed.set()
