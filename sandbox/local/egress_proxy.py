"""The way of one jail to the internet: an HTTP proxy of the host on a socket that listens inside the jail.

A jail has no network device. The program inside listens on its own loopback and hands the listening socket out, before
any command has run; the host accepts on it, resolves each name once, asks the guard, and connects to that very address.
"""

import asyncio
import logging
import os
import socket
from asyncio import StreamReader, StreamWriter, Timeout
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from core.web_access.guard import RefusedAddress
from sandbox.local.egress import MAIL_PORTS, Egress
from sandbox.local.proxy_request import ProxyRequest, Refused, parsed

CONNECT = Failpoint("sandbox.egress")
HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024
RESOLUTIONS = 2  # at a time: they take threads that others need too
ADDRESSES_TRIED = 4
TROUBLE_SECONDS = 0.5
LINGER_SECONDS = 30.0
NO_WAY_OUT = "The sandbox has no way to the internet and was not started."
NOT_PUBLIC = "{host} is not on the public internet; from a sandbox nothing else can be reached."
NOT_ALLOWED = "This sandbox may not connect to {host}: the operator has not allowed it."

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Course:
    """One connection on its way: what it may still move, and when it has been still for too long."""

    timeout: Timeout
    deadline: float
    idle_seconds: float
    bytes_left: int

    def moved(self, amount: int) -> None:
        self.bytes_left -= amount
        if not self.timeout.expired():
            now = asyncio.get_running_loop().time()
            self.timeout.reschedule(min(self.deadline, now + self.idle_seconds))


class Gateway:
    """Serves one jail from `start` to `close`. `for_inside` is the program's end, to send its socket over."""

    def __init__(self, egress: Egress, *, label: str) -> None:
        self._from_inside, self.for_inside = socket.socketpair()
        self._listener: socket.socket | None = None
        self._egress = egress
        self._label = label
        self._places = asyncio.Semaphore(egress.limits.connections)
        self._resolving = asyncio.Semaphore(RESOLUTIONS)
        self._bytes_left = egress.limits.total_bytes
        self._serving: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The program inside has spoken, so its socket is there. Raises SandboxUnavailable."""
        self.for_inside.close()
        self._listener = listener = _received(self._from_inside, self._label)
        self._accepting = spawn(self._accept(listener), name=f"egress of sandbox {self._label}")

    async def close(self) -> None:
        for task in (self._accepting, *self._serving):
            if task is not None:
                await cancel(task)
        self.discard()

    def discard(self) -> None:
        for end in (self._from_inside, self.for_inside, self._listener):
            if end is not None:
                end.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                inside, _ = await loop.sock_accept(listener)
            except OSError as error:
                self._places.release()
                log.warning("the egress of sandbox %s takes no connection: %s", self._label, error)
                await asyncio.sleep(TROUBLE_SECONDS)
                continue
            task = spawn(self._serve(inside), name=f"connection of sandbox {self._label}")
            self._serving.add(task)
            task.add_done_callback(partial(self._served, inside))

    def _served(self, inside: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._places.release()
        inside.close()

    async def _serve(self, inside: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=inside, limit=HEAD_BYTES_MAX)
        try:
            await self._carry_out(reader, writer)
        except Refused as refusal:
            log.info("sandbox %s: %s %s", self._label, refusal.status, refusal)
            await _answer(writer, refusal)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("a connection of sandbox %s was cut: %r", self._label, error)
            writer.transport.abort()
        finally:
            await _closed(writer)

    async def _carry_out(self, reader: StreamReader, writer: StreamWriter) -> None:
        limits = self._egress.limits
        try:
            async with asyncio.timeout(limits.head_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise Refused(431, "The request has too large a head.") from None
        request = parsed(head)
        if self._bytes_left <= 0:
            raise Refused(403, "This sandbox has moved as many bytes as it may.")
        upstream_reader, upstream = await self._connected(request)
        try:
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream.write(request.head)
            await self._relay((reader, upstream), (upstream_reader, writer), request)
        finally:
            upstream.transport.abort()
            await _closed(upstream)

    async def _connected(self, request: ProxyRequest) -> tuple[StreamReader, StreamWriter]:
        """Connected to an address that the guard has seen. Raises Refused."""
        host, port = request.host, request.port
        if port in MAIL_PORTS or not self._egress.policy.permits(host):
            raise Refused(403, NOT_ALLOWED.format(host=host))
        try:
            async with asyncio.timeout(self._egress.limits.connect_seconds):
                async with self._resolving:
                    addresses = await self._egress.guard.addresses(host, port)
                with CONNECT:
                    return await _first(addresses[:ADDRESSES_TRIED], port)
        except RefusedAddress:
            raise Refused(403, NOT_PUBLIC.format(host=host)) from None
        except TimeoutError:
            raise Refused(504, f"{host} does not answer.") from None
        except (OSError, UnicodeError):
            raise Refused(502, f"{host} cannot be reached.") from None

    async def _relay(
        self,
        up: tuple[StreamReader, StreamWriter],
        down: tuple[StreamReader, StreamWriter],
        request: ProxyRequest,
    ) -> None:
        """Until both ways have ended; of a plain request until the answer has."""
        limits, now = self._egress.limits, asyncio.get_running_loop().time()
        course = _Course(
            timeout=asyncio.timeout(limits.idle_seconds),
            deadline=now + limits.seconds,
            idle_seconds=limits.idle_seconds,
            bytes_left=limits.bytes,
        )
        async with course.timeout:
            sending = spawn(self._pump(*up, course), name="up")
            try:
                await self._pump(*down, course)
                if request.is_tunnel:
                    await sending
            finally:
                await cancel(sending)

    async def _pump(self, reader: StreamReader, writer: StreamWriter, course: _Course) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(PIECE_BYTES):
                course.moved(len(piece))
                self._bytes_left -= len(piece)
                if min(course.bytes_left, self._bytes_left) < 0:
                    log.warning("a connection of sandbox %s moved too many bytes", self._label)
                    writer.transport.abort()  # never an end that looks like a whole file
                    return
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()


def _received(from_inside: socket.socket, label: str) -> socket.socket:
    from_inside.setblocking(False)
    try:
        _, descriptors, _, _ = socket.recv_fds(from_inside, 16, 1)
    except OSError as error:
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: {error}") from error
    if len(descriptors) != 1:
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: {len(descriptors)} descriptors")
    listener = _checked(descriptors[0], label)
    listener.setblocking(False)
    return listener


def _checked(descriptor: int, label: str) -> socket.socket:
    """The descriptor as a listening socket; whatever else it is comes from a program that lies."""
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as error:
        os.close(descriptor)
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: no socket: {error}") from error
    is_stream = (listener.family, listener.type) == (socket.AF_INET, socket.SOCK_STREAM)
    if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.close()
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: not a socket that listens")
    listener.set_inheritable(False)
    return listener


async def _first(addresses: tuple[str, ...], port: int) -> tuple[StreamReader, StreamWriter]:
    """A connection to the first address that takes one. Raises the last one's OSError."""
    failure = OSError("no address")
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port, limit=PIECE_BYTES)
        except OSError as error:
            failure = error
    raise failure


async def _answer(writer: StreamWriter, refusal: Refused) -> None:
    body = f"{refusal}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status} Refused by the sandbox\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(TROUBLE_SECONDS):
            await writer.drain()


async def _closed(writer: StreamWriter) -> None:
    """Gives what is still on its way some time: the other end may not take it at all."""
    writer.close()
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await writer.wait_closed()
    finally:
        writer.transport.abort()
