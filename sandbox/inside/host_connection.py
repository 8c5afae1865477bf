"""The program's end of the byte stream to the host: calls on channels, flow control, and answers sent before bulk
data."""

from __future__ import annotations

import os

from sandbox.inside import protocol
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.fast_stdlib import deque, loads

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BULK_UNSENT_MAX = 128 * 1024


class CallError(Exception):
    """A call is refused. `code` tells the host how to treat the error; the message is for the model."""

    def __init__(self, message: str, code: str = "refused") -> None:
        super().__init__(message)
        self.code = code


class Call:
    """A call from the host. Streaming calls set the three callbacks. Every call ends once, by `answer` or `fail`."""

    def __init__(self, host: HostConnection, channel: int, request: dict[str, Any]) -> None:
        self._host = host
        self.channel = channel
        self.request = request
        self.credit = protocol.WINDOW_BYTES
        self.is_over = False
        self.next_piece: Callable[[], bytes | None] | None = None  # None: nothing more to send
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_cancel: Callable[[], None] | None = None

    def answer(self, value: dict[str, Any]) -> None:
        if self.is_over:
            return
        try:
            frame = protocol.encode_json_frame(protocol.RESULT, self.channel, value)
        except ValueError:
            self.fail(CallError("The answer is too large; ask for less, or use the shell."))
            return
        self._finish(frame)

    def fail(self, error: CallError) -> None:
        if not self.is_over:
            body = {"code": error.code, "message": str(error)[:2000]}
            self._finish(protocol.encode_json_frame(protocol.ERROR, self.channel, body))

    def send_pieces(self, next_piece: Callable[[], bytes | None]) -> None:
        """Sends the pieces that `next_piece` returns, as fast as the host accepts them.

        After None, the caller answers."""
        self.next_piece = next_piece
        self._host.add_sender(self)

    def grant_credit(self, amount: int) -> None:
        """Tells the host that this many bytes of its data were consumed."""
        if not self.is_over:
            credit = protocol.CREDIT_AMOUNT.pack(amount)
            self._host.send_urgent(protocol.encode_frame(protocol.CREDIT, self.channel, credit))

    def _finish(self, frame: bytes) -> None:
        self.is_over = True
        self._host.finish(self.channel, frame)


class HostConnection:
    def __init__(self, loop: EventLoop, read_fd: int, write_fd: int) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._received = bytearray()
        self._urgent: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._bulk_unsent = 0
        self._current = memoryview(b"")
        self._senders: deque[Call] = deque()
        self._calls: dict[int, Call] = {}
        self._is_writing = False
        self._is_muted = False
        self.on_call: Callable[[Call], None] = lambda call: None
        self.on_hello: Callable[[dict[str, Any]], None] = lambda hello: None
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        loop.on_readable(read_fd, self._read)

    def send_hello(self, hello: dict[str, Any]) -> None:
        self.send_urgent(protocol.encode_json_frame(protocol.HELLO, 0, hello))

    def stop_sending(self) -> None:
        """Stops sending, because the program is ending. Calls that end after that are not answered."""
        self._is_muted = True

    def add_sender(self, call: Call) -> None:
        self._senders.append(call)
        self._write()

    def finish(self, channel: int, frame: bytes) -> None:
        self._calls.pop(channel, None)
        if any(protocol.HEADER.unpack_from(waiting)[2] == channel for waiting in self._bulk):
            self._bulk.append(frame)  # a stream's end must follow its data
            self._bulk_unsent += len(frame)
            self._write()
        else:
            self.send_urgent(frame)

    def send_urgent(self, frame: bytes) -> None:
        self._urgent.append(frame)
        self._write()

    def _read(self) -> None:
        try:
            received = os.read(self._read_fd, 256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._loop.is_running = False  # the host is gone
            return
        self._received += received
        offset = 0
        while len(self._received) - offset >= protocol.HEADER.size:
            length, kind, channel = protocol.HEADER.unpack_from(self._received, offset)
            if length > max(0, protocol.payload_bytes_max(kind)):
                self._loop.is_running = False
                return
            start = offset + protocol.HEADER.size
            if len(self._received) - start < length:
                break
            offset = start + length
            payload = bytes(self._received[start:offset])
            if kind == protocol.OPEN:
                call = self._calls[channel] = Call(self, channel, loads(payload))
                self.on_call(call)
            elif kind == protocol.HELLO:
                self.on_hello(loads(payload))
            elif channel in self._calls:
                self._frame_of_call(kind, self._calls[channel], payload)
        del self._received[:offset]

    def _frame_of_call(self, kind: int, call: Call, payload: bytes) -> None:
        if kind == protocol.DATA and call.on_data is not None:
            call.on_data(payload)
        elif kind == protocol.END and call.on_end is not None:
            call.on_end()
        elif kind == protocol.CREDIT:
            call.credit += protocol.CREDIT_AMOUNT.unpack(payload)[0]
            if call.next_piece is not None and call not in self._senders:
                self.add_sender(call)
        elif kind == protocol.CANCEL:
            call.is_over = True
            self._calls.pop(call.channel, None)
            if call.on_cancel is not None:
                call.on_cancel()

    def _fill(self) -> None:
        while self._senders and self._bulk_unsent < BULK_UNSENT_MAX:
            call = self._senders.popleft()
            if call.is_over or call.next_piece is None or call.credit < protocol.DATA_BYTES_MAX:
                continue  # queued again when credit arrives
            piece = call.next_piece()
            if piece is None:
                call.next_piece = None
                continue
            call.credit -= len(piece)
            frame = protocol.encode_frame(protocol.DATA, call.channel, piece)
            self._bulk.append(frame)
            self._bulk_unsent += len(frame)
            self._senders.append(call)

    def _write(self) -> None:
        if self._is_muted:
            return
        if self._is_writing:
            return  # called from _fill; the outer call continues
        self._is_writing = True
        try:
            while self._next_frame():
                sent = os.write(self._write_fd, self._current)
                self._current = self._current[sent:]
            self._loop.on_writable(self._write_fd, None)
        except BlockingIOError:
            self._loop.on_writable(self._write_fd, self._write)
        except OSError:
            self._loop.is_running = False
        finally:
            self._is_writing = False

    def _next_frame(self) -> bool:
        if self._current:
            return True
        self._fill()
        if self._urgent:
            self._current = memoryview(self._urgent.popleft())
        elif self._bulk:
            frame = self._bulk.popleft()
            self._bulk_unsent -= len(frame)
            self._current = memoryview(frame)
        return bool(self._current)
