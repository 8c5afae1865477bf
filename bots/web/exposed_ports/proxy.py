"""Requests for ports of sandboxes, carried to the programs that listen there: HTTP and websockets."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from aiohttp import (
    ClientConnectionError,
    ClientError,
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

from bots.web.deps import PORTS, WebPorts
from bots.web.errors import Refusal
from bots.web.exposed_ports.headers import Headers, headers_for_inside, headers_for_people
from bots.web.exposed_ports.hostnames import exposed_host, label_in, opened
from bots.web.sandboxes import READER_FENCE
from core.domain.errors import AgentError, ToolError
from core.ports import PortStream
from core.server_shutdown import stop_accepting
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0
SILENCE_SECONDS = 600.0
GATES_MAX = 200
CONNECTIONS_MAX = 50
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_PIECE_BYTES = 1 << 16


@web.middleware
async def lead_to_ports(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What comes under the name of an exposed port goes there, and nowhere else: no route of ours is on that origin."""
    ports = request.app[PORTS]
    host = exposed_host(ports.expose_domain, ports.public_url)
    label = label_in(request.headers.get(hdrs.HOST, ""), host)
    if not label:
        return await handler(request)
    thread_id, port = opened(ports.link_secret, label)
    if ports.sandboxes is None or await ports.conversations.snapshot(thread_id) is None:
        raise Refusal(404, "not_found", "What was here is gone.")
    gate = await request.app[GATES].to(thread_id, port)
    try:
        return await _carried(request, gate)
    except (ClientConnectionError, TimeoutError) as error:
        raise Refusal(
            502, "nothing_listens", f"Nothing answers on port {port} of the sandbox just now."
        ) from error
    except ClientError as error:
        raise Refusal(
            502, "bad_answer", f"What answers on port {port} of the sandbox is no web server."
        ) from error


@dataclass(slots=True)
class Gate:
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


class Gates:
    """The ways in use, by thread and port. State: the sockets, in a folder of their own."""

    def __init__(self, ports: WebPorts) -> None:
        self._ports = ports
        self._folder: Path | None = None
        self._gates: dict[tuple[str, int], Gate] = {}
        self._numbers = count(1)
        self._opening = asyncio.Lock()

    async def to(self, thread_id: str, port: int) -> Gate:
        async with self._opening:
            gate = self._gates.pop((thread_id, port), None) or await self._open(thread_id, port)
            self._gates[thread_id, port] = gate  # the newest is last
            if len(self._gates) > GATES_MAX:
                await self._gates.pop(next(iter(self._gates))).close()
            return gate

    async def close(self) -> None:
        for gate in self._gates.values():
            await gate.close()
        self._gates.clear()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _open(self, thread_id: str, port: int) -> Gate:
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
        return Gate(port=port, server=server, session=session, carriers=carriers)

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


GATES: web.AppKey[Gates] = web.AppKey("gates", Gates)


async def gates_of(app: web.Application) -> AsyncIterator[None]:
    """For `cleanup_ctx`."""
    app[GATES] = Gates(app[PORTS])
    yield
    await app[GATES].close()


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


async def _carried(request: web.Request, gate: Gate) -> web.StreamResponse:
    url = URL(f"http://localhost:{gate.port}{request.raw_path}", encoded=True)
    headers = headers_for_inside(request, gate.port)
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
            headers=headers_for_people(answer, gate.port),
        )
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


async def _talk(
    request: web.Request, gate: Gate, url: URL, headers: Headers
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
