"""A call whose data, both ways, is that of a stream socket inside."""

from __future__ import annotations

import socket

from sandbox.inside import frames
from sandbox.inside.link import Call, CallError
from sandbox.inside.loop import Loop

UNSENT_BYTES_MAX = 8 * 1024 * 1024
LOST = "The program at the other end does not take what it is sent."


class Relay:
    """Takes the host's data from the start; `connect` gives it the socket, `refuse` says that there will be none.

    The call is answered when the socket's other end closes, and the socket closed when the host cancels the call.
    """

    def __init__(self, loop: Loop, call: Call) -> None:
        self._loop = loop
        self._call = call
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._received = b""
        self._is_ended = False
        self.is_over = False
        call.on_data, call.on_end, call.on_cancel = self._take, self._no_more, self.close

    def connect(self, connected: socket.socket, greeting: bytes = b"") -> None:
        """`greeting` goes to the host before the data."""
        if self.is_over:
            connected.close()
            return
        self._socket = connected
        connected.setblocking(False)
        if greeting:
            self._received = greeting
            self._call.send_pieces(self._piece)
        else:
            self._loop.on_readable(connected.fileno(), self._read)
        self._write()

    def refuse(self, error: CallError) -> None:
        self.close()
        self._call.fail(error)

    def close(self) -> None:
        self.is_over = True
        if self._socket is not None:
            self._loop.on_readable(self._socket.fileno(), None)
            self._loop.on_writable(self._socket.fileno(), None)
            self._socket.close()
            self._socket = None

    def _take(self, piece: bytes) -> None:
        self._unsent += piece
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self.refuse(CallError(LOST))
        else:
            self._write()

    def _no_more(self) -> None:
        self._is_ended = True
        self._write()

    def _write(self) -> None:
        if self._socket is None:
            return
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[: 256 * 1024])
                del self._unsent[:sent]
            if self._is_ended:
                self._socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._loop.on_writable(self._socket.fileno(), self._write)
        except OSError:
            self._finish()
        else:
            self._loop.on_writable(self._socket.fileno(), None)

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            self._received = self._socket.recv(frames.DATA_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            self._received = b""
        if not self._received:
            self._finish()
            return
        # the next piece is read when the host has taken this one
        self._loop.on_readable(self._socket.fileno(), None)
        self._call.send_pieces(self._piece)

    def _piece(self) -> bytes | None:
        piece, self._received = self._received, b""
        if not piece and self._socket is not None:
            self._loop.on_readable(self._socket.fileno(), self._read)
        return piece or None

    def _finish(self) -> None:
        self.close()
        self._call.answer({})
