"""The page on which a person takes over the agent's browser. The link is the right, for the first who opens it."""

import asyncio
import html
import json
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.resources import files
from pathlib import PurePath
from typing import cast

from aiohttp import WSMsgType, web

from bots.web import links
from bots.web.auth import host_and_port
from bots.web.deps import DEPS
from bots.web.errors import ApiError
from bots.web.request_parsing import parse_json_object, parse_text_field
from bots.web.takeover.claims import Claim, is_holder
from bots.web.takeover.sessions import (
    NOTE_CHARACTERS_MAX,
    TAKEOVER_SESSIONS,
    TakeoverSession,
    TakeoverSessions,
)
from core.domain.errors import AgentError, ToolError
from core.domain.messages import JsonObject
from core.ports import BrowserTakeover
from core.tasks import cancel, spawn

COOKIE = "threadhand_takeover"
MESSAGE_BYTES_MAX = 256 * 1024
HEARTBEAT_SECONDS = 20.0
FRAME_HEAD = struct.Struct(">HH")
TYPES = {".css": "text/css", ".js": "text/javascript"}
PAGE_FOLDER = "bots.web.takeover.page"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def routes() -> list[web.RouteDef]:
    return [
        web.get("/takeover/{token}", show, allow_head=False),
        web.post("/takeover/{token}/start", start),
        web.get("/takeover/{token}/socket", connect, allow_head=False),
        web.post("/takeover/{token}/finish", finish),
        web.get("/takeover-page/{name}", send_asset, allow_head=False),
    ]


async def takeover_sessions_context(app: web.Application) -> AsyncGenerator[None, None]:
    """Keeps the take-overs while the application runs."""
    desk = app[TAKEOVER_SESSIONS]
    await desk.start()
    yield
    await desk.close()


async def show(request: web.Request) -> web.Response:
    """`GET /takeover/{token}`: the page, as often as anybody looks; nothing is taken by looking."""
    try:
        link = links.verify_takeover_link(
            request.app[DEPS].link_secret, request.match_info["token"]
        )
    except ApiError as refusal:
        return _page("gone.html", status=refusal.status, why=refusal.message)
    claim = request.app[TAKEOVER_SESSIONS].claims.find(link.key)
    if claim is not None and (claim.is_done or not _is_theirs(request, claim)):
        why = (
            "The browser was handed back already."
            if claim.is_done
            else "Somebody else has opened this link already. It works once."
        )
        return _page("gone.html", status=410, why=f"{why} Write in the thread if you are needed.")
    return _page("page.html", task=await _task(request, link))


async def start(request: web.Request) -> web.Response:
    """`POST /takeover/{token}/start`: the first who presses the button has the browser."""
    _check_origin(request)
    link = links.verify_takeover_link(request.app[DEPS].link_secret, request.match_info["token"])
    desk = request.app[TAKEOVER_SESSIONS]
    cookie = await asyncio.to_thread(
        desk.claims.take, link.key, link.thread_id, int(link.expires_at)
    )
    response = web.json_response({"ok": True})
    if cookie is None:
        _holder(request, link)
        return response
    if (claim := desk.claims.find(link.key)) is not None:
        desk.taking(claim)  # looked after from now on, whether the page comes back or not
    response.set_cookie(
        COOKIE,
        cookie,
        path=request.path.removesuffix("/start"),
        max_age=int(links.TAKEOVER_SECONDS),
        httponly=True,
        samesite="Strict",
        secure=request.app[DEPS].public_url.startswith("https://") or request.secure,
    )
    return response


async def finish(request: web.Request) -> web.Response:
    """`POST /takeover/{token}/finish`: hands the browser back, with what the person wrote."""
    _check_origin(request)
    body = await parse_json_object(request)
    note = parse_text_field(body, "note", characters_max=NOTE_CHARACTERS_MAX)
    desk, taking = _taking(request)
    desk.use(taking, note)
    if not await desk.finish(taking):
        raise ApiError(409, "handed_back", "The browser was handed back already.")
    return web.json_response({"ok": True})


async def connect(request: web.Request) -> web.WebSocketResponse:
    """`GET /takeover/{token}/socket`: pictures out, as four bytes of width and height with a JPEG; what hands do in."""
    _check_origin(request)
    desk, taking = _taking(request)
    sandboxes = request.app[DEPS].sandboxes
    if sandboxes is None:
        raise ApiError(503, "sandbox_unavailable", "There is no sandbox on this server.")
    sandbox = await sandboxes.open(taking.claim.thread_id, fence=0)
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=MESSAGE_BYTES_MAX)
    await socket.prepare(request)
    for other in list(taking.visits):
        await other.close(code=4001, message=b"opened again")
    is_over = taking.visits[socket] = asyncio.Event()
    try:
        async with sandbox.browser.take_over() as hands:
            showing = spawn(_show(hands, socket), name="browser of a take-over")
            try:
                await _act(socket, hands, desk, taking)
            finally:
                await cancel(showing)
    except (AgentError, ToolError) as error:
        await _say(socket, {"t": "lost", "text": str(error)})
    finally:
        del taking.visits[socket]
        is_over.set()
        await socket.close()
    return socket


async def send_asset(request: web.Request) -> web.Response:
    """`GET /takeover-page/{name}`: the page's own script and style."""
    name = request.match_info["name"]
    mime_type = TYPES.get(PurePath(name).suffix)
    file = next((one for one in files(PAGE_FOLDER).iterdir() if one.name == name), None)
    if mime_type is None or file is None:
        raise ApiError(404, "not_found", "There is no such file.")
    text = file.read_text(encoding="utf-8")
    headers = {**HEADERS, "Cache-Control": "no-cache"}
    return web.Response(text=text, content_type=mime_type, headers=headers)


async def _act(
    socket: web.WebSocketResponse,
    hands: BrowserTakeover,
    desk: TakeoverSessions,
    taking: TakeoverSession,
) -> None:
    async for message in socket:
        if message.type != WSMsgType.TEXT:
            continue
        try:
            wish = json.loads(message.data)
        except (ValueError, RecursionError):
            continue
        if not isinstance(wish, dict):
            continue
        told = cast(JsonObject, wish)
        kind = told.get("t")
        if kind == "note":
            desk.use(taking, str(told.get("text", "")))
            continue
        if kind not in ("ack", "size"):
            desk.use(taking)
        await hands.send(told)


async def _show(hands: BrowserTakeover, socket: web.WebSocketResponse) -> None:
    """Whatever the browser tells; it was made by pages, and the page treats it so."""
    try:
        async with aclosing(_received(hands)) as messages:
            async for told, picture in messages:
                if told.get("t") == "frame":
                    head = FRAME_HEAD.pack(_side(told.get("w")), _side(told.get("h")))
                    await socket.send_bytes(head + picture)
                else:
                    await socket.send_json(told)
        await _say(socket, {"t": "lost", "text": "The browser has ended."})
    except (AgentError, ToolError) as error:
        await _say(socket, {"t": "lost", "text": str(error)})
    except ConnectionError:
        return
    await socket.close()


async def _received(hands: BrowserTakeover) -> AsyncGenerator[tuple[JsonObject, bytes], None]:
    async for message in hands.receive():
        yield message


async def _say(socket: web.WebSocketResponse, message: JsonObject) -> None:
    if not socket.closed:
        await socket.send_json(message)


async def _task(request: web.Request, link: links.TakeoverLink) -> str:
    """What the agent has asked for, without the link itself."""
    snapshot = await request.app[DEPS].conversations.snapshot(link.thread_id)
    ask = snapshot.open_ask if snapshot else None
    if ask is None or link.key not in ask.text:
        return "The agent asked for help in its browser."
    return "\n".join(line for line in ask.text.splitlines() if link.key not in line).strip()


def _page(name: str, *, status: int = 200, **texts: str) -> web.Response:
    page = (files(PAGE_FOLDER) / name).read_text(encoding="utf-8")
    for key, text in texts.items():
        page = page.replace(f"{{{{{key}}}}}", html.escape(text))
    return web.Response(text=page, status=status, content_type="text/html", headers=HEADERS)


def _taking(request: web.Request) -> tuple[TakeoverSessions, TakeoverSession]:
    """Raises Refusal for anybody but the holder of the link."""
    link = links.verify_takeover_link(request.app[DEPS].link_secret, request.match_info["token"])
    desk = request.app[TAKEOVER_SESSIONS]
    return desk, desk.taking(_holder(request, link))


def _holder(request: web.Request, link: links.TakeoverLink) -> Claim:
    claim = request.app[TAKEOVER_SESSIONS].claims.find(link.key)
    if claim is None:
        raise ApiError(403, "not_started", "Open the link and press the button first.")
    if not _is_theirs(request, claim):
        raise ApiError(403, "taken", "Somebody else has opened this link already. It works once.")
    if claim.is_done:
        raise ApiError(409, "handed_back", "The browser was handed back already.")
    return claim


def _is_theirs(request: web.Request, claim: Claim) -> bool:
    return is_holder(claim, request.cookies.get(COOKIE, ""))


def _check_origin(request: web.Request) -> None:
    """Pages of other sites may neither start nor steer: a browser names the page that asks."""
    origin = request.headers.get("Origin")
    ours = {request.headers.get("Host", ""), host_and_port(request.app[DEPS].public_url)}
    if origin is None or host_and_port(origin) not in ours - {""}:
        raise ApiError(403, "forbidden", "Only the take-over page itself may do this.")


def _side(value: object) -> int:
    return max(0, min(65_535, int(value))) if isinstance(value, int | float) else 0
