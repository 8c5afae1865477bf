"""HTTP routes of the page on which a user takes over the agent's browser.

A take-over link works only for the first user who presses the start button."""

import asyncio
import html
import json
import struct
from collections.abc import AsyncGenerator
from importlib.resources import files
from pathlib import PurePath
from typing import cast

from aiohttp import WSMsgType, web

from bots.web import links
from bots.web.auth import host_and_port, is_same_host
from bots.web.deps import DEPS
from bots.web.errors import ApiError, error_page
from bots.web.request_parsing import parse_json_object, parse_text_field
from bots.web.takeover.sessions import (
    NOTE_CHARACTERS_MAX,
    TAKEOVER_SESSIONS,
    TakeoverSession,
    TakeoverSessions,
    is_holder,
)
from core.domain.errors import RunError, ToolError
from core.domain.json import JsonObject
from core.ports import TakeoverConnection
from core.stores import TakeoverClaim
from core.tasks import cancel, spawn

COOKIE = "threadhand_takeover"
MESSAGE_BYTES_MAX = 256 * 1024
HEARTBEAT_SECONDS = 20.0
FRAME_HEAD = struct.Struct(">HH")
TYPES = {".css": "text/css", ".js": "text/javascript"}
HANDED_BACK = "The browser was handed back already."
TAKEN = "This link was already used in another browser, and works only there."
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
        web.get("/takeover/{token}", show_page, allow_head=False),
        web.post("/takeover/{token}/start", start_takeover),
        web.get("/takeover/{token}/socket", connect_browser, allow_head=False),
        web.post("/takeover/{token}/finish", finish_takeover),
        web.get("/takeover-page/{name}", send_asset, allow_head=False),
    ]


async def takeover_sessions_context(app: web.Application) -> AsyncGenerator[None, None]:
    """Starts and closes the take-over sessions with the application. Registered in aiohttp's `cleanup_ctx`."""
    sessions = app[TAKEOVER_SESSIONS]
    await sessions.start()
    yield
    await sessions.close()


async def show_page(request: web.Request) -> web.Response:
    """`GET /takeover/{token}`: shows the page.

    A GET request does not claim the browser, because chat platforms also fetch links."""
    try:
        link = await _verified_link(request)
    except ApiError as error:
        return error_page(error)
    claim = await request.app[TAKEOVER_SESSIONS].find_claim(link.key)
    if claim is not None and claim.is_ended:
        return error_page(ApiError(410, "handed_back", HANDED_BACK))
    if claim is not None and not _is_theirs(request, claim):
        return error_page(ApiError(410, "taken", TAKEN))
    page = (files(PAGE_FOLDER) / "page.html").read_text(encoding="utf-8")
    snapshot = await request.app[DEPS].conversations.snapshot(link.thread_id)
    ask, task = snapshot.open_ask if snapshot else None, "The agent asked for help in its browser."
    if ask is not None and link.key in ask.text:  # the agent's question, without the line that contains the link
        task = "\n".join(line for line in ask.text.splitlines() if link.key not in line).strip()
    text = page.replace("{{task}}", html.escape(task))
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


async def start_takeover(request: web.Request) -> web.Response:
    """`POST /takeover/{token}/start`: gives control of the browser to the first user who presses the button."""
    _check_origin(request)
    link = await _verified_link(request)
    cookie = await request.app[TAKEOVER_SESSIONS].claim(link)
    response = web.json_response({"ok": True})
    if cookie is None:
        await _require_holder(request, link)
        return response
    public_url = request.app[DEPS].links.public_url
    response.set_cookie(
        COOKIE,
        cookie,
        path="",  # an empty path means the folder of the URL, which works behind a proxy with a path prefix
        max_age=int(links.TAKEOVER_SECONDS),
        httponly=True,
        samesite="Lax",  # the holder may open the link in the chat again; requests with effects check the origin
        secure=public_url.startswith("https://") or request.secure,
    )
    return response


async def finish_takeover(request: web.Request) -> web.Response:
    """`POST /takeover/{token}/finish`: hands the browser back to the agent, with the user's note."""
    _check_origin(request)
    body = await parse_json_object(request)
    note = parse_text_field(body, "note", characters_max=NOTE_CHARACTERS_MAX)
    sessions, session = await _require_session(request)
    sessions.record_use(session, note)
    if not await sessions.finish(session):
        raise ApiError(409, "handed_back", HANDED_BACK)
    return web.json_response({"ok": True})


async def connect_browser(request: web.Request) -> web.WebSocketResponse:
    """`GET /takeover/{token}/socket`: a WebSocket that sends browser frames and receives the user's input.

    A frame consists of its width and height as 16-bit big-endian numbers, followed by a JPEG image."""
    _check_origin(request)
    sessions, session = await _require_session(request)
    sandboxes = request.app[DEPS].sandboxes
    if sandboxes is None:
        raise ApiError(503, "sandbox_unavailable", "There is no sandbox on this server.")
    sandbox = await sandboxes.open(session.claim.thread_id, fence=0)
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=MESSAGE_BYTES_MAX)
    await socket.prepare(request)
    for other in list(session.sockets):
        await other.close(code=4001, message=b"opened again")
    is_released = session.sockets[socket] = asyncio.Event()
    try:
        if await sessions.is_over(session):  # since the request came; nobody would close this page
            await socket.close(code=4000, message=b"handed back")
            return socket
        async with sandbox.browser.take_over() as hands:
            showing = spawn(_send_frames(hands, socket), name="browser of a take-over")
            try:
                async for message in socket:
                    if message.type != WSMsgType.TEXT:
                        continue
                    try:
                        content = json.loads(message.data)
                    except (ValueError, RecursionError):
                        continue
                    if not isinstance(content, dict):
                        continue
                    command = cast(JsonObject, content)
                    kind = command.get("t")
                    if kind == "note":
                        sessions.record_use(session, str(command.get("text", "")))
                        continue
                    if kind not in ("ack", "size"):
                        sessions.record_use(session)
                    await hands.send(command)
            finally:
                await cancel(showing)
    except (RunError, ToolError) as error:
        await _send_message(socket, {"t": "lost", "text": str(error)})
    finally:
        del session.sockets[socket]
        is_released.set()
        await socket.close()
    return socket


async def send_asset(request: web.Request) -> web.Response:
    """`GET /takeover-page/{name}`: sends a script or style sheet of the take-over page."""
    name = request.match_info["name"]
    mime_type = TYPES.get(PurePath(name).suffix)
    file = next((one for one in files(PAGE_FOLDER).iterdir() if one.name == name), None)
    if mime_type is None or file is None:
        raise ApiError(404, "not_found", "There is no such file.")
    text = file.read_text(encoding="utf-8")
    headers = {**HEADERS, "Cache-Control": "no-cache"}
    return web.Response(text=text, content_type=mime_type, headers=headers)


async def _send_frames(hands: TakeoverConnection, socket: web.WebSocketResponse) -> None:
    """Forwards frames and messages from the browser to the page, which must treat them as untrusted."""
    try:
        async for message, picture in hands.receive():
            if message.get("t") == "frame":
                head = FRAME_HEAD.pack(_side(message.get("w")), _side(message.get("h")))
                await socket.send_bytes(head + picture)
            else:
                await socket.send_json(message)
        await _send_message(socket, {"t": "lost", "text": "The browser has ended."})
    except (RunError, ToolError) as error:
        await _send_message(socket, {"t": "lost", "text": str(error)})
    except ConnectionError:
        return
    await socket.close()


async def _send_message(socket: web.WebSocketResponse, message: JsonObject) -> None:
    if not socket.closed:
        await socket.send_json(message)


async def _verified_link(request: web.Request) -> links.TakeoverLink:
    """Returns the link in the URL path. Raises ApiError if it is invalid or expired, or if its conversation was
    deleted, because opening the sandbox would create it again."""
    deps = request.app[DEPS]
    link = links.verify_takeover_link(deps.links.secret, request.match_info["token"])
    if await deps.conversations.snapshot(link.thread_id) is None:
        raise ApiError(410, "handed_back", "The conversation of this link was deleted.")
    return link


async def _require_session(request: web.Request) -> tuple[TakeoverSessions, TakeoverSession]:
    """Returns the active take-over session. Raises ApiError unless the request comes from the user who claimed it."""
    sessions = request.app[TAKEOVER_SESSIONS]
    claim = await _require_holder(request, await _verified_link(request))
    return sessions, sessions.get_or_start_session(claim)


async def _require_holder(request: web.Request, link: links.TakeoverLink) -> TakeoverClaim:
    """Returns the claim of a take-over link.

    Raises ApiError 403 unless the request comes from the user who claimed the link, and 409 if the take-over has ended.
    """
    claim = await request.app[TAKEOVER_SESSIONS].find_claim(link.key)
    if claim is None:
        raise ApiError(403, "not_started", "Open the link and press the button first.")
    if not _is_theirs(request, claim):
        raise ApiError(403, "taken", TAKEN)
    if claim.is_ended:
        raise ApiError(409, "handed_back", HANDED_BACK)
    return claim


def _is_theirs(request: web.Request, claim: TakeoverClaim) -> bool:
    return is_holder(claim, request.cookies.get(COOKIE, ""))


def _check_origin(request: web.Request) -> None:
    """Raises ApiError 403 for requests from other origins, which must not start or control a take-over."""
    origin = request.headers.get("Origin")
    public_url = request.app[DEPS].links.public_url
    is_public = bool(public_url) and origin is not None and host_and_port(origin) == host_and_port(public_url)
    if origin is None or not (is_public or is_same_host(origin, request.headers.get("Host", ""))):
        raise ApiError(403, "forbidden", "Only the take-over page itself may do this.")


def _side(value: object) -> int:
    """Returns the width or height of a frame, clamped to the range of an unsigned 16-bit number."""
    return max(0, min(65_535, int(value))) if isinstance(value, int | float) else 0
