"""The HTTP proxy through which a jail reaches the internet, served by the host on a socket that listens in the jail.

A jail has no network device. Before any command runs, the program inside listens on its own loopback and sends the
listening socket to the host. The host accepts connections on it, asks the thread's limits whether the host may be
reached, resolves each name once, checks the address with the guard, and connects to exactly that address. One address
can serve many sites, so a tunnel of a limited thread must be TLS, for a host that may be reached as well.

Pages may reach hosts that commands may not. Connections of the browser come from the program inside, one by one."""

import asyncio
import logging
import os
import re
import socket
from asyncio import StreamReader, StreamWriter, Timeout
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from core.domain.call_targets import normalize_target
from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from core.web_access.forward_proxy import ProxyFailed
from core.web_access.guard import AddressGuard, RefusedAddress
from sandbox.local.egress_policy import MAIL_PORTS, EgressConfig, parse_address
from sandbox.local.thread_network import ThreadNetwork
from sandbox.local.tls_hello import NO_HELLO, parse_site, read_client_hello

HEADERS_MAX = 200
REQUEST_LINE = re.compile(r"([A-Za-z]{1,20}) ([!-~]{1,16000}) HTTP/1\.([01])")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}):[ \t]*+([^\x00\r\n]*)")
AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253}))(?::([0-9]{1,5}))?")
HOP_BY_HOP_HEADERS = frozenset(
    (b"connection", b"host", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te")
)  # fmt: skip


class RefusedRequest(Exception):
    """The request is refused; the message is returned to the client in the sandbox."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    """`head` is forwarded to the host. It is empty for a tunnel."""

    host: str
    port: int
    head: bytes = b""

    @property
    def is_tunnel(self) -> bool:
        return not self.head


def parse_proxy_request(head: bytes) -> ProxyRequest:
    """Parses the request head, including its empty line. Raises RefusedRequest."""
    line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matched = REQUEST_LINE.fullmatch(line.decode("latin-1"))
    if matched is None or len(headers) > HEADERS_MAX:
        raise RefusedRequest(400, "The proxy does not understand this request.")
    method, target = matched[1].upper(), matched[2]
    if method == "CONNECT":
        host, port = _place(target, None)
        return ProxyRequest(host=host, port=port)
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise RefusedRequest(400, "This proxy accepts CONNECT, and addresses that begin with http://.")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :].partition("#")[0]
    host, port = _place(authority, 80)
    path = path if path.startswith("/") else f"/{path}"
    first = f"{method} {path} HTTP/1.{matched[3]}\r\nHost: {authority}\r\n".encode("latin-1")
    return ProxyRequest(host=host, port=port, head=first + _passed_on(headers) + b"Connection: close\r\n\r\n")


def _place(authority: str, default_port: int | None) -> tuple[str, int]:
    matched = AUTHORITY.fullmatch(authority)
    if matched is None or (matched[3] is None and default_port is None):
        raise RefusedRequest(400, "This is not a host name with a port.")
    port = int(matched[3]) if matched[3] else default_port
    if not port or port > 65_535:
        raise RefusedRequest(400, "There is no such port.")
    return (matched[1] or matched[2]).lower().rstrip("."), port


def _passed_on(lines: list[bytes]) -> bytes:
    """Returns the end-to-end headers, each on a line of its own."""
    named: list[tuple[bytes, bytes]] = []
    for line in lines:
        matched = HEADER_LINE.fullmatch(line)
        if matched is None:
            raise RefusedRequest(400, "The headers of the request are malformed.")
        named.append((matched[1].lower(), line))
    dropped: set[bytes] = set(HOP_BY_HOP_HEADERS)
    for name, line in named:
        if name == b"connection":
            dropped.update(part.strip().lower() for part in line.partition(b":")[2].split(b","))
    dropped -= {b"content-length", b"transfer-encoding"}  # they define where the body ends
    return b"".join(line + b"\r\n" for name, line in named if name not in dropped)


CONNECT = Failpoint("sandbox.egress")
HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 16
RESOLUTIONS = 2  # at a time: each one takes a thread that all sandboxes share
ADDRESSES_TRIED = 4
TROUBLE_SECONDS = 0.5
LINGER_SECONDS = 30.0
NO_WAY_OUT = "The sandbox was not started because its internet access failed."
NOT_PUBLIC = "{host} is not on the public internet, and a sandbox can reach nothing else."
NOT_NAMED = "Nobody in this thread has named {host}, so programs cannot reach it without consent."
NOT_ALLOWED = "This sandbox may not connect to {host}: the operator has not allowed it."

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _ConnectionLimits:
    """The bytes that one connection may still transfer, and its deadlines. `check_host` raises RefusedRequest if its
    host may not be reached any more."""

    check_host: Callable[[], None]
    timeout: Timeout
    deadline: float
    idle_seconds: float
    bytes_left: int

    def record_bytes(self, amount: int) -> None:
        self.bytes_left -= amount
        if not self.timeout.expired():
            self.timeout.reschedule(min(self.deadline, asyncio.get_running_loop().time() + self.idle_seconds))


class EgressProxy:
    """Serves one jail from `start` to `close`. The program inside sends its listening socket over `program_socket`, and
    later each connection of the browser. `network` contains the limits of the thread."""

    def __init__(self, egress: EgressConfig, network: ThreadNetwork, *, label: str) -> None:
        self._host_socket, self.program_socket = socket.socketpair()
        self._listener: socket.socket | None = None
        self._egress = egress
        self._network = network
        self._label = label
        self._free_connections = asyncio.Semaphore(egress.limits.connections)
        self._resolving = asyncio.Semaphore(RESOLUTIONS)
        self._bytes_left = egress.limits.total_bytes
        self._serving: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Call this after the hello, when the program has sent its socket. Raises SandboxUnavailable."""
        self.program_socket.close()
        self._listener = listener = _receive_listener(self._host_socket, self._label)
        name = f"egress of sandbox {self._label}"
        self._accepting = [
            spawn(self._accept(listener), name=name),
            spawn(self._accept_from_browser(), name=f"{name}, browser"),
        ]

    async def close(self) -> None:
        await cancel(*self._accepting, *self._serving)
        self.close_sockets()

    def close_sockets(self) -> None:
        for end in (self._host_socket, self.program_socket, self._listener):
            if end is not None:
                end.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free_connections.acquire()
            try:
                inside, _ = await loop.sock_accept(listener)
            except OSError as error:
                self._free_connections.release()
                log.warning("the egress of sandbox %s cannot accept a connection: %s", self._label, error)
                await asyncio.sleep(TROUBLE_SECONDS)
                continue
            self._begin_serving(inside, is_browser=False)

    async def _accept_from_browser(self) -> None:
        while True:
            await _wait_until_readable(self._host_socket)
            await self._free_connections.acquire()
            try:
                inside = _receive_socket(self._host_socket, is_listening=False)
            except OSError as error:
                log.info("the browser of sandbox %s has no way out any more: %s", self._label, error)
                return
            if inside is None:
                self._free_connections.release()
            else:
                self._begin_serving(inside, is_browser=True)

    def _begin_serving(self, inside: socket.socket, *, is_browser: bool) -> None:
        task = spawn(self._serve(inside, is_browser=is_browser), name=f"connection of sandbox {self._label}")
        self._serving.add(task)
        task.add_done_callback(partial(self._finish_serving, inside))

    def _finish_serving(self, inside: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._free_connections.release()
        inside.close()

    async def _serve(self, inside: socket.socket, *, is_browser: bool) -> None:
        reader, writer = await asyncio.open_connection(sock=inside, limit=HEAD_BYTES_MAX)
        try:
            await self._proxy_request(reader, writer, is_browser=is_browser)
        except RefusedRequest as refusal:
            log.info("sandbox %s: %s %s", self._label, refusal.status, refusal)
            body = f"{refusal}\n".encode()
            head = (
                f"HTTP/1.1 {refusal.status} Refused by the sandbox\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(TROUBLE_SECONDS):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("a connection of sandbox %s was cut: %r", self._label, error)
            writer.transport.abort()
        finally:
            await _close_writer(writer)

    async def _proxy_request(self, reader: StreamReader, writer: StreamWriter, *, is_browser: bool) -> None:
        limits = self._egress.limits
        try:
            async with asyncio.timeout(limits.head_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise RefusedRequest(431, "The request headers are too large.") from None
        request = parse_proxy_request(head)
        self._check_limits(request, is_browser=is_browser)
        if self._bytes_left <= 0:
            raise RefusedRequest(403, "This sandbox has reached its transfer limit.")
        upstream_reader, upstream = await self._connect_upstream(request)
        try:
            self._network.record_connection()
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                upstream.write(await self._check_tunnel(reader, request, is_browser=is_browser))
            upstream.write(request.head)
            check_host = partial(self._check_limits, request, is_browser=is_browser)
            await self._relay((reader, upstream), (upstream_reader, writer), request, check_host)
        finally:
            upstream.transport.abort()
            await _close_writer(upstream)

    def _check_limits(self, request: ProxyRequest, *, is_browser: bool) -> None:
        """Raises RefusedRequest if the operator or the thread's limits do not allow the host. Users are not asked about
        hosts that cannot be reached or that the operator does not allow."""
        host, hosts = request.host, self._hosts(is_browser=is_browser)
        if request.port in MAIL_PORTS or not self._egress.policy.permits(host):
            raise RefusedRequest(403, NOT_ALLOWED.format(host=host))
        address = f"https://[{host}]" if ":" in host else f"https://{host}"
        if hosts is None or self._egress.policy.is_named(host) or normalize_target(address) in hosts:
            return
        is_public = "." in host if parse_address(host) is None else self._egress.guard.permits(host, request.port)
        if not is_public:
            raise RefusedRequest(403, NOT_PUBLIC.format(host=host))
        self._network.record_refusal(host)
        raise RefusedRequest(403, NOT_NAMED.format(host=host))

    def _hosts(self, *, is_browser: bool) -> frozenset[str] | None:
        limits = self._network.limits()
        return limits.browser if is_browser else limits.commands

    async def _check_tunnel(self, reader: StreamReader, request: ProxyRequest, *, is_browser: bool) -> bytes:
        """Reads the beginning of a tunnel to find out which site is named inside it, because that site must be allowed
        as well. Does so only if the thread's hosts are limited. Returns the bytes that were read. Raises
        RefusedRequest, TimeoutError and IncompleteReadError."""
        if self._hosts(is_browser=is_browser) is None:
            return b""
        try:
            async with asyncio.timeout(self._egress.limits.head_seconds):
                begun, hello = await read_client_hello(reader)
            site = parse_site(hello, may_be_encrypted=is_browser)  # browsers fill that field with random bytes
            if not site and parse_address(request.host) is None:  # a client that connects to an address names no site
                raise ValueError(NO_HELLO)
        except ValueError as error:
            raise RefusedRequest(403, str(error)) from None
        self._bytes_left -= len(begun)
        if site:
            self._check_limits(ProxyRequest(host=site, port=request.port), is_browser=is_browser)
        return begun

    async def _connect_upstream(self, request: ProxyRequest) -> tuple[StreamReader, StreamWriter]:
        """Connects to an address that the guard allows. Raises RefusedRequest."""
        host, port = request.host, request.port
        try:
            async with asyncio.timeout(self._egress.limits.connect_seconds):
                found = await self._egress.guard.resolve_host(host, port, self._resolving)
                addresses = [one for one in found if self._egress.policy.permits_address(one)]
                if not addresses:
                    raise RefusedRequest(403, NOT_ALLOWED.format(host=host))
                with CONNECT:
                    return await _connect_to_any(
                        self._egress.guard, addresses[:ADDRESSES_TRIED], port, self._egress.limits.connect_seconds
                    )
        except RefusedAddress:
            raise RefusedRequest(403, NOT_PUBLIC.format(host=host)) from None
        except TimeoutError:
            raise RefusedRequest(504, f"{host} does not answer.") from None
        except ProxyFailed as error:
            log.warning("sandbox %s: %s", self._label, error)
            raise RefusedRequest(502, "The proxy of this installation does not work.") from None
        except (OSError, UnicodeError):
            raise RefusedRequest(502, f"{host} cannot be reached.") from None

    async def _relay(
        self,
        up: tuple[StreamReader, StreamWriter],
        down: tuple[StreamReader, StreamWriter],
        request: ProxyRequest,
        check_host: Callable[[], None],
    ) -> None:
        """Copies data until both directions have ended; for a plain request, until the answer has. Each piece is judged
        by the limits that hold then."""
        limits, now = self._egress.limits, asyncio.get_running_loop().time()
        connection_limits = _ConnectionLimits(
            check_host=check_host,
            timeout=asyncio.timeout(limits.idle_seconds),
            deadline=now + limits.seconds,
            idle_seconds=limits.idle_seconds,
            bytes_left=limits.bytes,
        )
        async with connection_limits.timeout:
            sending = spawn(self._pump(*up, connection_limits), name="up")
            try:
                await self._pump(*down, connection_limits)
                if request.is_tunnel:
                    await sending
            finally:
                await cancel(sending)

    async def _pump(self, reader: StreamReader, writer: StreamWriter, connection_limits: _ConnectionLimits) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(PIECE_BYTES):
                connection_limits.record_bytes(len(piece))
                self._bytes_left -= len(piece)
                if min(connection_limits.bytes_left, self._bytes_left) < 0:
                    log.warning("a connection of sandbox %s moved too many bytes", self._label)
                    writer.transport.abort()  # a regular end would look like a complete file
                    return
                try:
                    connection_limits.check_host()
                except RefusedRequest as refusal:
                    log.info("an open connection of sandbox %s ends: %s", self._label, refusal)
                    writer.transport.abort()
                    return
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()


def _receive_listener(host_socket: socket.socket, label: str) -> socket.socket:
    host_socket.setblocking(False)
    try:
        listener = _receive_socket(host_socket, is_listening=True)
    except OSError as error:
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: {error}") from error
    if listener is None:
        raise SandboxUnavailable(NO_WAY_OUT, detail=f"{label}: not a listening socket")
    return listener


def _receive_socket(host_socket: socket.socket, *, is_listening: bool) -> socket.socket | None:
    """Returns the TCP socket that the program inside has sent. Returns None for anything else, which only a compromised
    program sends, or if this process has no free descriptor. Raises OSError, for example if the program has ended."""
    data, descriptors, _, _ = socket.recv_fds(host_socket, MESSAGE_BYTES_MAX, 1)
    if not data:
        raise ConnectionResetError("the program inside has ended")
    for descriptor in descriptors:
        try:
            received = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        is_stream = (received.family, received.type) == (socket.AF_INET, socket.SOCK_STREAM)
        if is_stream and bool(received.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) == is_listening:
            received.setblocking(False)
            return received
        received.close()
    return None


async def _wait_until_readable(waiting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(waiting, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waiting)


async def _connect_to_any(
    guard: AddressGuard, addresses: list[str], port: int, seconds: float
) -> tuple[StreamReader, StreamWriter]:
    """Connects to the first address that accepts a connection within its share of the time. Raises the OSError of the
    last address."""
    failure = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(seconds / len(addresses)):
                if guard.proxy is not None:
                    return await guard.proxy.connect(address, port)
                return await asyncio.open_connection(address, port, limit=PIECE_BYTES)
        except OSError as error:
            failure = error
    raise failure


async def _close_writer(writer: StreamWriter) -> None:
    """Closes the writer. Waits a limited time for unsent data, because the other end may never read it."""
    writer.close()
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await writer.wait_closed()
    finally:
        writer.transport.abort()
