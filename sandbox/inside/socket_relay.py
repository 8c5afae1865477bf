"""Connects calls of the host with sockets in the sandbox: the browser, ports of programs, and the egress proxy."""

from __future__ import annotations

import errno
import os
import socket

from sandbox.inside import protocol
from sandbox.inside.event_loop import EventLoop, Timer
from sandbox.inside.host_connection import Call, CallError


class SocketRelay:
    """Copies data between a call and a stream socket. Buffers the host's data until `connect` or `refuse`, as much as
    its credit allows: more is granted for what the socket has taken.

    The call is answered when the peer closes the socket, and the socket is closed when the host cancels the call."""

    def __init__(self, loop: EventLoop, call: Call) -> None:
        self._loop = loop
        self._call = call
        self._socket: socket.socket | None = None
        self._unsent = bytearray()
        self._received = b""
        self.is_over = False
        call.on_data, call.on_cancel = self._take, self.close

    def connect(self, connected: socket.socket, greeting: bytes = b"") -> None:
        """`greeting` is sent to the host before the data."""
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
        self._write()

    def _write(self) -> None:
        if self._socket is None:
            return
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[: 256 * 1024])
                del self._unsent[:sent]
                self._call.grant_credit(sent)
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
            self._received = self._socket.recv(protocol.DATA_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            self._received = b""
        if not self._received:
            self._finish()
            return
        # the next piece is read when the host has accepted this one
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


SECONDS_MAX = 10.0
CONNECTED = b"\x01"
"""Sent before the data, so that the host knows that a program is listening."""
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class PortConnector:
    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop

    def connect(self, call: Call) -> None:
        port = call.request["port"]
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65_536:
            raise CallError(f"{port!r} is no port.")
        _Attempt(self._loop, SocketRelay(self._loop, call), port).next()


class _Attempt:
    """Tries the addresses one after the other."""

    def __init__(self, loop: EventLoop, relay: SocketRelay, port: int) -> None:
        self._loop = loop
        self._relay = relay
        self._port = port
        self._left = list(ADDRESSES)
        self._socket: socket.socket | None = None
        self._timer: Timer | None = None

    def next(self) -> None:
        while self._left and not self._relay.is_over:
            family, address = self._left.pop(0)
            try:
                self._socket = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # this kernel lacks the protocol
            self._socket.setblocking(False)
            if self._socket.connect_ex((address, self._port)) in (0, errno.EINPROGRESS):
                self._loop.on_writable(self._socket.fileno(), self._decided)
                self._timer = self._loop.call_later(SECONDS_MAX, self._failed)
                return
            self._socket.close()
        if not self._relay.is_over:
            self._relay.refuse(CallError(f"Nothing listens on port {self._port} of the sandbox."))

    def _decided(self) -> None:
        connected = self._release()
        if connected is None:
            return
        if connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            connected.close()
            self.next()
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._relay.connect(connected, greeting=CONNECTED)

    def _failed(self) -> None:
        connecting = self._release()
        if connecting is not None:
            connecting.close()
            self.next()

    def _release(self) -> socket.socket | None:
        """Removes the socket from the event loop and returns it."""
        taken, self._socket = self._socket, None
        if taken is not None:
            self._loop.on_writable(taken.fileno(), None)
        if self._timer is not None:
            self._timer.cancel()
        return taken


EGRESS_PROXY_HOST = "127.0.0.1"
EGRESS_PROXY_PORTS = COMMANDS_PORT, BROWSER_PORT = 3128, 3129
"""The browser may reach other hosts than commands may."""
BACKLOG = 128


def send_egress_listener(descriptor: int) -> socket.socket:
    """Sends a listening socket for the egress proxy to the host over that unix socket, which is returned.

    Must be called before any command runs."""
    to_host = socket.socket(fileno=descriptor)
    with socket.socket() as listening:
        os.set_inheritable(descriptor, False)
        listening.bind((EGRESS_PROXY_HOST, COMMANDS_PORT))
        listening.listen(BACKLOG)
        socket.send_fds(to_host, [b"egress"], [listening.fileno()])
    return to_host
