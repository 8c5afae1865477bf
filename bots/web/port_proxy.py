"""Forwards HTTP requests and WebSocket connections to ports of sandboxes."""

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
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
    WSCloseCode,
    WSMsgType,
    hdrs,
    web,
)
from aiohttp.typedefs import Handler
from yarl import URL

from bots.web.deps import DEPS, WebDeps
from bots.web.errors import ApiError
from bots.web.links import exposed_ports_domain, port_label_from_host, verify_port_label
from bots.web.sandbox_files import READER_FENCE
from core.domain.errors import RunError, ToolError
from core.http_shutdown import stop_accepting
from core.ports import PortStream
from core.tasks import cancel, spawn

Headers = list[tuple[str, str]]
_OWN_COOKIE_PREFIX = "threadhand"
_HOP_BY_HOP = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "host"),
)
_PROXY_HEADERS = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip")
_REQUEST_HEADERS_DROPPED = frozenset((*_HOP_BY_HOP, *_PROXY_HEADERS, "cookie", "authorization", "origin", "expect"))
_DECOMPRESSED = frozenset(("gzip", "deflate", "br", "zstd"))
"""The encodings of a request's body that aiohttp has undone when we read it."""
_RESPONSE_HEADERS_DROPPED = frozenset(
    (*(*_HOP_BY_HOP, "set-cookie", "location"), *("strict-transport-security", "alt-svc", "clear-site-data"))
)
_COOKIE_DOMAIN = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)
_REFERRER = "Referrer-Policy"
_WHOLE_URL = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


def request_headers_for_sandbox(request: web.Request, port: int) -> Headers:
    """Returns the headers to forward to the sandbox: without Threadhand's cookies, the API token and proxy headers."""
    given, host = request.headers, request.headers[hdrs.HOST]
    headers = _without(given.items(), _REQUEST_HEADERS_DROPPED, given.get(hdrs.CONNECTION, ""))
    if given.get(hdrs.CONTENT_ENCODING, "").lower() in _DECOMPRESSED:
        headers = _without(headers, frozenset(("content-encoding", "content-length")), "")
    headers.append((hdrs.HOST, f"localhost:{port}"))
    parts = (part.strip() for line in given.getall(hdrs.COOKIE, []) for part in line.split(";"))
    if cookies := "; ".join(part for part in parts if part and not part.lower().startswith(_OWN_COOKIE_PREFIX)):
        headers.append((hdrs.COOKIE, cookies))
    token, authorization = request.app[DEPS].api_token, given.get(hdrs.AUTHORIZATION, "")
    if authorization and not (token and token in authorization):
        headers.append((hdrs.AUTHORIZATION, authorization))
    if origin := given.get(hdrs.ORIGIN):
        is_own = origin.partition("://")[2] == host
        headers.append((hdrs.ORIGIN, f"http://localhost:{port}" if is_own else origin))
    return [*headers, ("X-Forwarded-Host", host), ("X-Forwarded-Proto", request.scheme)]


def response_headers_for_client(answer: ClientResponse, port: int) -> Headers:
    """Returns the headers to forward to the client, without those that affect other host names, such as HSTS.

    Adds a referrer policy if there is none, because the URL contains a secret that other sites must not receive."""
    given = answer.headers
    headers = _without(given.items(), _RESPONSE_HEADERS_DROPPED, given.get(hdrs.CONNECTION, ""))
    for cookie in given.getall(hdrs.SET_COOKIE, []):
        headers.append((hdrs.SET_COOKIE, _COOKIE_DOMAIN.sub("", cookie)))
    if target := given.get(hdrs.LOCATION):
        own = rf"^https?://(localhost|127\.0\.0\.1):{port}(?=[/?#]|$)"
        headers.append((hdrs.LOCATION, re.sub(own, "", target) or "/"))
    if _REFERRER not in given:
        headers.append((_REFERRER, "same-origin"))
    return headers


def _without(headers: Iterable[tuple[str, str]], unwanted: frozenset[str], connection: str) -> Headers:
    """Returns the headers except `unwanted` headers and the hop-by-hop headers listed in `connection`.

    `connection` is the value of the Connection header."""
    dropped = unwanted.union(part.strip().lower() for part in connection.split(","))
    return [(name, value) for name, value in headers if name.lower() not in dropped]


log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0
READ_SECONDS = 600.0
PORT_PROXIES_MAX = 200
CONNECTIONS_MAX = 50
"""Limit for the HTTP requests of one port. WebSockets have a limit of their own."""
WEBSOCKETS_MAX = 50
HEARTBEAT_SECONDS = 30.0
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_PIECE_BYTES = 1 << 16


@web.middleware
async def port_proxy_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Forwards requests for the host name of an exposed port to that port. Other requests go to the API."""
    deps = request.app[DEPS]
    host = exposed_ports_domain(deps.links.expose_domain, deps.links.public_url)
    label = port_label_from_host(request.headers.get(hdrs.HOST, ""), host)
    if not label:
        return await handler(request)
    thread_id, port = verify_port_label(deps.links.secret, label)
    if deps.sandboxes is None or await deps.conversations.snapshot(thread_id) is None:
        raise ApiError(404, "not_found", "What was here is gone.")
    proxy = await request.app[PORT_PROXIES].open(thread_id, port)
    try:
        target = request.raw_path  # the target may be a whole URL, `*`, or the host that `CONNECT` names
        if _WHOLE_URL.match(target):
            target = _WHOLE_URL.sub("", target) or "/"
        if not target.startswith("/"):
            raise ApiError(400, "bad_target", "A request must name a path.")
        url = URL(f"http://localhost:{proxy.port}{target}", encoded=True)
        headers = request_headers_for_sandbox(request, proxy.port)
        if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
            wanted = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "")
            protocols = tuple(filter(None, (part.strip() for part in wanted.split(","))))
            plain = [pair for pair in headers if not pair[0].lower().startswith("sec-websocket")]
            async with proxy.websocket_session.ws_connect(
                url, headers=plain, protocols=protocols, max_msg_size=MESSAGE_BYTES_MAX
            ) as inside:
                chosen = (inside.protocol,) if inside.protocol else ()
                outside = web.WebSocketResponse(
                    protocols=chosen, max_msg_size=MESSAGE_BYTES_MAX, heartbeat=HEARTBEAT_SECONDS
                )
                await outside.prepare(request)
                proxy.add_websocket(outside)
                record_use = partial(proxy.record_use, outside)
                try:
                    await _run_until_first(
                        _copy_messages(outside, inside, record_use), _copy_messages(inside, outside, record_use)
                    )
                    await outside.close(code=inside.close_code or 1000)
                finally:
                    proxy.websockets.pop(outside, None)
                return outside
        async with proxy.session.request(
            request.method,
            url,
            headers=headers,
            data=request.content if request.body_exists else None,
            allow_redirects=False,
            skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=response_headers_for_client(answer, proxy.port)
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response
    except (ClientConnectionError, TimeoutError) as error:
        raise ApiError(502, "nothing_listens", f"Nothing answers on port {port} of the sandbox just now.") from error
    except ClientError as error:
        raise ApiError(502, "bad_answer", f"What answers on port {port} of the sandbox is no web server.") from error


@dataclass(slots=True)
class PortProxy:
    """A private Unix socket that forwards connections to a port of a sandbox.

    `session` sends HTTP requests through the socket, `websocket_session` opens WebSockets. `forwarders` holds the task
    of each open connection. `websockets` are the WebSockets of visitors, ordered by their last use, oldest first."""

    port: int
    server: asyncio.Server
    session: ClientSession
    websocket_session: ClientSession
    forwarders: set[asyncio.Task[None]]
    websockets: dict[web.WebSocketResponse, None] = field(default_factory=dict[web.WebSocketResponse, None])

    def add_websocket(self, websocket: web.WebSocketResponse) -> None:
        """Adds a WebSocket. If there are too many, closes the one that has been silent the longest."""
        if len(self.websockets) >= WEBSOCKETS_MAX:
            silent = next(iter(self.websockets))
            del self.websockets[silent]
            # in the background, because closing waits for the peer's response
            spawn(silent.close(code=WSCloseCode.TRY_AGAIN_LATER), name="close a silent WebSocket")
        self.websockets[websocket] = None

    def record_use(self, websocket: web.WebSocketResponse) -> None:
        if websocket in self.websockets:
            del self.websockets[websocket]
            self.websockets[websocket] = None

    async def close(self) -> None:
        await stop_accepting(self.server)
        self.server.close()
        await self.session.close()
        await self.websocket_session.close()
        await cancel(*self.forwarders)


class PortProxies:
    """Opens and caches a proxy for each exposed port. The sockets are in a temporary folder."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._folder: Path | None = None
        self._proxies: dict[tuple[str, int], PortProxy] = {}
        self._numbers = count(1)
        self._opening = asyncio.Lock()

    async def open(self, thread_id: str, port: int) -> PortProxy:
        async with self._opening:
            proxy = self._proxies.pop((thread_id, port), None) or await self._open(thread_id, port)
            self._proxies[thread_id, port] = proxy  # the most recently used proxy comes last
            if len(self._proxies) > PORT_PROXIES_MAX:
                await self._proxies.pop(next(iter(self._proxies))).close()
            return proxy

    async def close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
        self._proxies.clear()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _open(self, thread_id: str, port: int) -> PortProxy:
        if self._folder is None:
            # mkdtemp uses mode 0700, so other users of this machine cannot reach the sockets
            self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="thports-"))
        path = self._folder / str(next(self._numbers))

        forwarders: set[asyncio.Task[None]] = set()

        def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            forwarding = self._forward(thread_id, port, reader, writer)
            forwarder = spawn(forwarding, name="connection to a sandbox port")
            forwarders.add(forwarder)
            forwarder.add_done_callback(forwarders.discard)
            # close the writer here, because a task that is cancelled before it starts does not
            forwarder.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_unix_server(receive, path)
        session, websocket_session = (
            ClientSession(
                connector=UnixConnector(str(path), limit=limit),
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                timeout=ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            )
            for limit in (CONNECTIONS_MAX, 0)
        )
        return PortProxy(
            port=port, server=server, session=session, websocket_session=websocket_session, forwarders=forwarders
        )

    async def _forward(
        self, thread_id: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forwards a connection to a sandbox port until either end closes it."""
        assert self._deps.sandboxes is not None  # noqa: S101 - checked before a proxy is opened
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sandbox = await self._deps.sandboxes.open(thread_id, fence=READER_FENCE)
                stream = await sandbox.connect(port)
            try:
                await _run_until_first(_copy_to_sandbox(reader, stream), _copy_from_sandbox(stream, writer))
            finally:
                stream.close()
        except (RunError, ToolError, OSError) as error:
            log.info("no connection to port %d of a sandbox: %s", port, type(error).__name__)


PORT_PROXIES: web.AppKey[PortProxies] = web.AppKey("port_proxies", PortProxies)


async def port_proxies_context(app: web.Application) -> AsyncIterator[None]:
    """Closes all port proxies when the application ends. Registered in aiohttp's `cleanup_ctx`."""
    app[PORT_PROXIES] = PortProxies(app[DEPS])
    yield
    await app[PORT_PROXIES].close()


async def _copy_to_sandbox(reader: asyncio.StreamReader, stream: PortStream) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        async with asyncio.timeout(READ_SECONDS):  # the program in the sandbox may never read
            await stream.write(piece)


async def _copy_from_sandbox(stream: PortStream, writer: asyncio.StreamWriter) -> None:
    while piece := await stream.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _run_until_first(*awaitables: Awaitable[None]) -> None:
    """Runs the awaitables concurrently until the first of them ends, then cancels the others."""
    tasks = [spawn(_log_disconnect(work), name="sandbox port") for work in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*tasks)


async def _log_disconnect(work: Awaitable[None]) -> None:
    try:
        await work
    except (RunError, ToolError, OSError, ClientError) as error:
        log.debug("a connection to a sandbox ended: %s", type(error).__name__)


Socket = ClientWebSocketResponse | web.WebSocketResponse


async def _copy_messages(source: Socket, target: Socket, record_use: Callable[[], None]) -> None:
    async for message in source:
        record_use()
        if message.type is WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)
