"""Requests for ports of sandboxes, carried to the programs that listen there: HTTP and websockets."""

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from aiohttp import (
    ClientConnectionError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    DummyCookieJar,
    UnixConnector,
    WSMsgType,
    hdrs,
    web,
)
from aiohttp.typedefs import Handler
from yarl import URL

from bots.web.deps import DEPS, WebDeps
from bots.web.errors import ApiError
from bots.web.links import exposed_ports_domain, label_from_host, verify_label
from bots.web.sandbox_files import READER_FENCE
from core.domain.errors import AgentError, ToolError
from core.ports import PortStream
from core.server_shutdown import stop_accepting
from core.tasks import cancel, spawn

Headers = list[tuple[str, str]]
_OWN_COOKIE = "threadhand"
_BETWEEN_TWO = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "host"),
)
_OF_PROXIES = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip")
_NOT_FOR_INSIDE = frozenset((*_BETWEEN_TWO, *_OF_PROXIES, "cookie", "authorization", "origin"))
_NOT_FOR_PEOPLE = frozenset(
    (
        *(*_BETWEEN_TWO, "set-cookie", "location"),
        *("strict-transport-security", "alt-svc", "clear-site-data"),
    )
)
_DOMAIN_OF_COOKIE = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_REFERRER = "Referrer-Policy"


def request_headers_for_sandbox(request: web.Request, port: int) -> Headers:
    """Without what is between people and us: our cookies, our token, what proxies add."""
    given, host = request.headers, request.headers[hdrs.HOST]
    headers = _without(given.items(), _NOT_FOR_INSIDE, given.get(hdrs.CONNECTION, ""))
    headers.append((hdrs.HOST, f"localhost:{port}"))
    if cookies := _foreign_cookies(given.getall(hdrs.COOKIE, [])):
        headers.append((hdrs.COOKIE, cookies))
    token, authorization = request.app[DEPS].api_token, given.get(hdrs.AUTHORIZATION, "")
    if authorization and not (token and token in authorization):
        headers.append((hdrs.AUTHORIZATION, authorization))
    if origin := given.get(hdrs.ORIGIN):
        is_own = origin.partition("://")[2] == host
        headers.append((hdrs.ORIGIN, f"http://localhost:{port}" if is_own else origin))
    return [*headers, ("X-Forwarded-Host", host), ("X-Forwarded-Proto", request.scheme)]


def response_headers_for_client(answer: ClientResponse, port: int) -> Headers:
    """Without power over other names below the domain; the address with its secret label is told to no other site."""
    given = answer.headers
    headers = _without(given.items(), _NOT_FOR_PEOPLE, given.get(hdrs.CONNECTION, ""))
    for cookie in given.getall(hdrs.SET_COOKIE, []):
        headers.append((hdrs.SET_COOKIE, _DOMAIN_OF_COOKIE.sub("", cookie)))
    if target := given.get(hdrs.LOCATION):
        own = rf"^https?://(localhost|127\.0\.0\.1):{port}(?=[/?#]|$)"
        headers.append((hdrs.LOCATION, re.sub(own, "", target) or "/"))
    if _REFERRER not in given:
        headers.append((_REFERRER, "same-origin"))
    return headers


def _without(
    headers: Iterable[tuple[str, str]], unwanted: frozenset[str], connection: str
) -> Headers:
    """`connection` is the header of that name, which names more that is between two."""
    named = unwanted.union(part.strip().lower() for part in connection.split(","))
    return [(name, value) for name, value in headers if name.lower() not in named]


def _foreign_cookies(lines: list[str]) -> str:
    parts = (part.strip() for line in lines for part in line.split(";"))
    return "; ".join(part for part in parts if part and not part.lower().startswith(_OWN_COOKIE))


log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0
SILENCE_SECONDS = 600.0
PORT_PROXIES_MAX = 200
CONNECTIONS_MAX = 50
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_PIECE_BYTES = 1 << 16


@web.middleware
async def port_proxy_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What comes under the name of an exposed port goes there, and nowhere else: no route of ours is on that origin."""
    deps = request.app[DEPS]
    host = exposed_ports_domain(deps.links.expose_domain, deps.links.public_url)
    label = label_from_host(request.headers.get(hdrs.HOST, ""), host)
    if not label:
        return await handler(request)
    thread_id, port = verify_label(deps.links.secret, label)
    if deps.sandboxes is None or await deps.conversations.snapshot(thread_id) is None:
        raise ApiError(404, "not_found", "What was here is gone.")
    gate = await request.app[PORT_PROXIES].to(thread_id, port)
    try:
        return await _carried(request, gate)
    except (ClientConnectionError, TimeoutError) as error:
        raise ApiError(
            502, "nothing_listens", f"Nothing answers on port {port} of the sandbox just now."
        ) from error
    except ClientError as error:
        raise ApiError(
            502, "bad_answer", f"What answers on port {port} of the sandbox is no web server."
        ) from error


@dataclass(slots=True)
class PortProxy:
    """The way to one port: a socket of this machine, private to this program, whose connections end in the sandbox.

    State: the connections, each carried by a task.
    """

    port: int
    server: asyncio.Server
    session: ClientSession
    carriers: set[asyncio.Task[None]]

    async def close(self) -> None:
        await stop_accepting(self.server)
        self.server.close()
        await self.session.close()
        for carrier in tuple(self.carriers):
            await cancel(carrier)


class PortProxies:
    """The ways in use, by thread and port. State: the sockets, in a folder of their own."""

    def __init__(self, ports: WebDeps) -> None:
        self._ports = ports
        self._folder: Path | None = None
        self._gates: dict[tuple[str, int], PortProxy] = {}
        self._numbers = count(1)
        self._opening = asyncio.Lock()

    async def to(self, thread_id: str, port: int) -> PortProxy:
        async with self._opening:
            gate = self._gates.pop((thread_id, port), None) or await self._open(thread_id, port)
            self._gates[thread_id, port] = gate  # the newest is last
            if len(self._gates) > PORT_PROXIES_MAX:
                await self._gates.pop(next(iter(self._gates))).close()
            return gate

    async def close(self) -> None:
        for gate in self._gates.values():
            await gate.close()
        self._gates.clear()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _open(self, thread_id: str, port: int) -> PortProxy:
        if self._folder is None:
            # its mode is 0700: no other user of this machine gets to the sockets
            self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="thports-"))
        path = self._folder / str(next(self._numbers))

        carriers: set[asyncio.Task[None]] = set()

        def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carrying = self._carry(thread_id, port, reader, writer)
            carrier = spawn(carrying, name="a connection to a port of a sandbox")
            carriers.add(carrier)
            carrier.add_done_callback(carriers.discard)
            # one that is cancelled before it has begun comes to no end of its own
            carrier.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_unix_server(receive, path)
        session = ClientSession(
            connector=UnixConnector(str(path), limit=CONNECTIONS_MAX),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            timeout=ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS),
        )
        return PortProxy(port=port, server=server, session=session, carriers=carriers)

    async def _carry(
        self,
        thread_id: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One connection, until one of its ends is closed."""
        assert self._ports.sandboxes is not None  # noqa: S101 - looked at before a gate is opened
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sandbox = await self._ports.sandboxes.open(thread_id, fence=READER_FENCE)
                stream = await sandbox.connect(port)
            try:
                await _first_of(_inwards(reader, stream), _outwards(stream, writer))
            finally:
                stream.close()
        except (AgentError, ToolError, OSError) as error:
            log.info("no connection to port %d of a sandbox: %s", port, type(error).__name__)


PORT_PROXIES: web.AppKey[PortProxies] = web.AppKey("gates", PortProxies)


async def port_proxies_context(app: web.Application) -> AsyncIterator[None]:
    """For `cleanup_ctx`."""
    app[PORT_PROXIES] = PortProxies(app[DEPS])
    yield
    await app[PORT_PROXIES].close()


async def _inwards(reader: asyncio.StreamReader, stream: PortStream) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        await stream.write(piece)


async def _outwards(stream: PortStream, writer: asyncio.StreamWriter) -> None:
    while piece := await stream.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _first_of(*works: Awaitable[None]) -> None:
    """Returns when one of them has ended, raising what it raised; the others are given up."""

    tasks = [spawn(_quietly(work), name="port of a sandbox") for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            await cancel(task)


async def _quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except (AgentError, ToolError, OSError, ClientError) as error:
        log.debug("a connection to a sandbox ended: %s", type(error).__name__)


async def _carried(request: web.Request, gate: PortProxy) -> web.StreamResponse:
    url = URL(f"http://localhost:{gate.port}{request.raw_path}", encoded=True)
    headers = request_headers_for_sandbox(request, gate.port)
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        return await _talk(request, gate, url, headers)
    async with gate.session.request(
        request.method,
        url,
        headers=headers,
        data=request.content if request.body_exists else None,
        allow_redirects=False,
        skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
    ) as answer:
        response = web.StreamResponse(
            status=answer.status,
            reason=answer.reason,
            headers=response_headers_for_client(answer, gate.port),
        )
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


async def _talk(
    request: web.Request, gate: PortProxy, url: URL, headers: Headers
) -> web.WebSocketResponse:
    wanted = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "")
    protocols = tuple(filter(None, (part.strip() for part in wanted.split(","))))
    plain = [pair for pair in headers if not pair[0].lower().startswith("sec-websocket")]
    async with gate.session.ws_connect(
        url, headers=plain, protocols=protocols, max_msg_size=MESSAGE_BYTES_MAX
    ) as inside:
        chosen = (inside.protocol,) if inside.protocol else ()
        outside = web.WebSocketResponse(protocols=chosen, max_msg_size=MESSAGE_BYTES_MAX)
        await outside.prepare(request)
        await _first_of(_messages(outside, inside), _messages(inside, outside))
        await outside.close(code=inside.close_code or 1000)
        return outside


Socket = ClientWebSocketResponse | web.WebSocketResponse


async def _messages(source: Socket, target: Socket) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)
