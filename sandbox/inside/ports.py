"""Connections of the host to programs that listen on a port inside."""

from __future__ import annotations

import errno
import socket

from sandbox.inside.link import Call, CallError
from sandbox.inside.loop import Loop, Timer
from sandbox.inside.relay import Relay

SECONDS_MAX = 10.0
CONNECTED = b"\x01"
"""Goes before the data, so that the host knows that somebody listens."""
ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class Ports:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def connect(self, call: Call) -> None:
        port = call.request["port"]
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65_536:
            raise CallError(f"{port!r} is no port.")
        _Attempt(self._loop, Relay(self._loop, call), port).next()


class _Attempt:
    """Tries one address after the other."""

    def __init__(self, loop: Loop, relay: Relay, port: int) -> None:
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
                continue  # no such protocol here
            self._socket.setblocking(False)
            if self._socket.connect_ex((address, self._port)) in (0, errno.EINPROGRESS):
                self._loop.on_writable(self._socket.fileno(), self._decided)
                self._timer = self._loop.later(SECONDS_MAX, self._failed)
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
        """The socket, with nobody listening to it any more."""
        taken, self._socket = self._socket, None
        if taken is not None:
            self._loop.on_writable(taken.fileno(), None)
        if self._timer is not None:
            self._timer.cancel()
        return taken
