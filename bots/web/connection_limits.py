"""Limits the number of connections of an HTTP server, the time in which a request must arrive, and the time in which a
client must read its response."""

import asyncio
import logging
import resource
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)

ARRIVAL_SECONDS = 10.0
"""How long the head of the first request may take, and the period in which at least BODY_BYTES_MIN of a body must
arrive."""
BODY_BYTES_MIN = 1024
BODY_SECONDS = 900.0
"""How long a complete body may take."""
ANSWER_SECONDS = 60.0
"""A connection is closed if its client has read nothing of a waiting response for this long."""
KEEPALIVE_SECONDS = 75.0
CONNECTIONS_MAX = 4096


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Counts a server's connections. One address may have at most half of them, so that others can connect."""

    connections_max: int
    arrival_seconds: float = ARRIVAL_SECONDS
    body_seconds: float = BODY_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    _open: Counter[str] = field(default_factory=Counter[str])

    def admit(self, address: str) -> bool:
        """Counts a new connection. Returns False, and does not count the connection, if there are too many."""
        if self._open.total() >= self.connections_max:
            return self._refuse("too many connections")
        if self._open[address] >= max(1, self.connections_max // 2):
            return self._refuse("too many connections of one address")
        self._open[address] += 1
        return True

    def release(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def log_closed(self, reason: str) -> None:
        log.warning("the HTTP server has closed a connection: %s", reason)

    def _refuse(self, reason: str) -> bool:
        self.log_closed(reason)
        return False


def limits_of_this_process() -> ConnectionLimits:
    """Returns limits under which connections use at most half of the process's file descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CONNECTIONS_MAX if descriptors < 0 else min(CONNECTIONS_MAX, descriptors // 2)
    return ConnectionLimits(connections_max=most)


class LimitedSite(web.TCPSite):
    """A site whose connections are subject to the limits."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, limits: ConnectionLimits) -> None:
        super().__init__(runner, host, port)
        self._limits = limits

    async def start(self) -> None:
        await web.BaseSite.start(self)
        server = cast(web.Server, self._runner.server)
        loop = asyncio.get_running_loop()
        connection = partial(_Connection, server, self._limits, loop)
        self._server = await loop.create_server(connection, self._host, self._port)


class _Connection(web.RequestHandler):
    __slots__ = (
        "_address", "_has_head", "_limits", "_received", "_request", "_request_at",
        "_taken", "_taken_at", "_timer",
    )  # fmt: skip

    def __init__(self, server: web.Server, limits: ConnectionLimits, loop: asyncio.AbstractEventLoop) -> None:
        no_log = cast(logging.Logger, None)
        super().__init__(server, loop=loop, access_log=no_log, keepalive_timeout=KEEPALIVE_SECONDS)
        self._limits = limits
        self._address: str | None = None
        self._has_head = False
        self._received = 0
        self._request: web.BaseRequest | None = None
        self._taken = 0
        self._request_at = self._taken_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = _network_of(transport.get_extra_info("peername"))
        if not self._limits.admit(address):
            cast(asyncio.Transport, transport).abort()
            return
        self._address = address
        self._watch()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._address is not None:
            self._limits.release(self._address)
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._received += len(data)
        self._has_head = self._has_head or bool(self._messages) or self._current_request is not None

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs a handler's error with its traceback. A malformed request is not an error of the server, so it is logged
        without one."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            self._limits.log_closed("a malformed request")
        elif not isinstance(error, ConnectionError):  # the client has disconnected
            super().log_exception(*args, **kw)

    def _watch(self) -> None:
        self._received = 0
        self._timer = asyncio.get_running_loop().call_later(self._limits.arrival_seconds, self._check)

    def _check(self) -> None:
        """Aborts the connection if its request does not arrive or its response is not read."""
        reason = "" if self._arrives() else "a request that did not arrive"
        if not self._is_answer_taken():
            reason = "an answer that was not taken"
        if not reason:
            self._watch()
            return
        self._limits.log_closed(reason)
        if self.transport is not None:
            self.transport.abort()

    def _arrives(self) -> bool:
        """Whether the head or the next part of the body has arrived. Always true while a handler does not read the
        body."""
        request = self._current_request
        if request is not self._request:
            self._request, self._request_at = request, time.monotonic()
        if request is None or request.content.is_eof() or self._reading_paused:
            return self._has_head
        seconds = time.monotonic() - self._request_at
        return self._received >= BODY_BYTES_MIN and seconds < self._limits.body_seconds

    def _is_answer_taken(self) -> bool:
        """Whether no response is waiting, or the client has recently read a part of it."""
        transport = self.transport
        waiting_bytes = transport.get_write_buffer_size() if transport is not None else 0
        taken = _acknowledged_bytes(transport)
        if not waiting_bytes or taken != self._taken:
            self._taken, self._taken_at = taken, time.monotonic()
        return time.monotonic() - self._taken_at < self._limits.answer_seconds


def _acknowledged_bytes(transport: asyncio.Transport | None) -> int:
    """Returns how many bytes of responses the client's system has acknowledged."""
    if transport is None:
        return 0
    try:
        facts = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return struct.unpack_from("=Q", facts, 120)[0]  # tcpi_bytes_acked of Linux
    except (OSError, AttributeError, struct.error):  # on other systems, a smaller write buffer shows progress
        return -transport.get_write_buffer_size()


def _network_of(peer: object) -> str:
    """Returns the address under which connections are counted. All addresses of an IPv6 network count as one."""
    host = str(cast(tuple[object, ...], peer)[0]) if isinstance(peer, tuple) and peer else ""
    try:
        known = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(known, IPv6Address) and known.ipv4_mapped is None:
        return str(IPv6Address(int(known) >> 64 << 64))
    return str(known)
