"""Stands between the program and a simulated platform, and records what both say on the wire."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from urllib.parse import parse_qsl

from aiohttp import ClientSession, ClientWebSocketResponse, DummyCookieJar, WSMsgType, web
from yarl import URL

from tests.support.web import serve_http

_OF_ONE_HOP = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request of the program and its answer. Bodies that are no JSON, form or multipart body are None."""

    method: str
    path: str
    body: object
    status: int
    answer: object


@dataclass
class RecordingProxy:
    """`frames_in` are the WebSocket messages that the program gets, `frames_out` those that it sends."""

    target: str
    origin: str = ""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    frames_in: list[object] = field(default_factory=list[object])
    frames_out: list[object] = field(default_factory=list[object])

    def url(self, of_target: str) -> str:
        """The address by which the program reaches an address of the platform."""
        return of_target.replace(self.target, self.origin)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._join(request)
        sent = await request.read()
        address = URL(f"http://{self.target}{request.rel_url}", encoded=True)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OF_ONE_HOP}
        async with (
            ClientSession(cookie_jar=DummyCookieJar()) as session,
            session.request(request.method, address, data=sent, headers=headers, allow_redirects=False) as got,
        ):
            answer = self._own(await got.read())
            kept = {k: v for k, v in got.headers.items() if k.lower() not in _OF_ONE_HOP}
            self.exchanges.append(
                Exchange(
                    method=request.method,
                    path=request.path,
                    body=read_body(sent, request.headers.get("Content-Type", "")),
                    status=got.status,
                    answer=read_json(answer),
                )
            )
            return web.Response(status=got.status, body=answer, headers=kept)

    def _own(self, content: bytes) -> bytes:
        return content.replace(self.target.encode(), self.origin.encode())

    async def _join(self, request: web.Request) -> web.StreamResponse:
        near = web.WebSocketResponse(max_msg_size=0, autoping=True)
        await near.prepare(request)
        address = URL(f"http://{self.target}{request.rel_url}", encoded=True)
        async with ClientSession() as session, session.ws_connect(address, max_msg_size=0) as far:
            there = asyncio.ensure_future(self._pass_on(near, far))
            try:
                async for message in far:
                    if message.type == WSMsgType.TEXT:
                        text = self._own(message.data.encode()).decode()
                        self.frames_in.append(json.loads(text))
                        await near.send_str(text)
                await near.close(code=far.close_code or 1000)
            except ConnectionError:
                pass
            finally:
                there.cancel()
        return near

    async def _pass_on(self, near: web.WebSocketResponse, far: ClientWebSocketResponse) -> None:
        async for message in near:
            if message.type == WSMsgType.TEXT:
                self.frames_out.append(json.loads(message.data))
                await far.send_str(message.data)
        await far.close(code=near.close_code or 1000)


@asynccontextmanager
async def recording(target_url: str) -> AsyncGenerator[RecordingProxy, None]:
    """Context manager: a proxy in front of the server of this URL."""
    proxy = RecordingProxy(URL(target_url).authority)
    async with serve_http(proxy.handle) as url:
        proxy.origin = URL(url).authority
        yield proxy


def read_json(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def read_body(content: bytes, content_type: str) -> object:
    """The JSON of the body, in a form that of each field, in a multipart body that of `payload_json`."""
    if content_type.startswith("application/x-www-form-urlencoded"):
        return dict(map(_field, parse_qsl(content.decode(), keep_blank_values=True)))
    if content_type.startswith("multipart/form-data"):
        head = f"Content-Type: {content_type}\r\n\r\n".encode()
        for part in message_from_bytes(head + content).walk():
            if part.get_param("name", header="content-disposition") == "payload_json":
                payload = part.get_payload(decode=True)
                return read_json(payload) if isinstance(payload, bytes) else None
        return None
    return read_json(content)


def _field(pair: tuple[str, str]) -> tuple[str, object]:
    name, value = pair
    is_json = value.startswith(("{", "["))
    return name, read_json(value.encode()) if is_json else value
