"""Receives Slack's payloads, as signed HTTP requests or over a Socket Mode connection."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import parse_qs

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest

from bots.slack import limits
from bots.slack.events.payload_fields import get_object, get_objects, get_text
from bots.slack.web_api.client import SlackClient
from core.domain.json import JsonObject
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)


class HttpTransport:
    """Handles the HTTP route for events, interactions and Slack's certificate checks."""

    def __init__(self, signing_secret: str) -> None:
        self._secret = signing_secret.encode()
        self._bolt: AsyncApp | None = None
        self._on_events_dropped: Callable[[], None] = lambda: None

    def start(self, bolt: AsyncApp, on_events_dropped: Callable[[], None]) -> None:
        """Starts to accept payloads. `on_events_dropped` is called for each minute in which Slack delivered no events
        because there were too many."""
        self._bolt = bolt
        self._on_events_dropped = on_events_dropped

    def stop(self) -> None:
        self._bolt = None

    async def handle(self, request: web.Request) -> web.Response:
        """Returns 200 only for stored payloads, 401 for a bad signature, and 503 before `serve`, so that Slack
        redelivers."""
        raw = await request.read()
        if is_ssl_check(raw):
            return web.Response()
        headers = request.headers
        timestamp = headers.get("X-Slack-Request-Timestamp", "")
        if not is_signature_valid(raw, timestamp, headers.get("X-Slack-Signature", ""), self._secret, now=time.time()):
            log.warning("slack: refused a request with an invalid or expired signature")
            return web.Response(status=401)
        if self._bolt is None:
            return web.Response(status=503)
        try:
            taken = AsyncBoltRequest(body=raw.decode(), query=request.query_string, headers=dict(headers))
        except (ValueError, AttributeError, TypeError, KeyError, IndexError, RecursionError):
            # Bolt parses the body immediately and fails if the JSON has an unexpected shape.
            taken = None
        if taken is None or not _has_known_shape(taken):
            log.warning("slack: refused a signed request whose body has an unexpected shape")
            return web.Response(status=400)
        if taken.body.get("type") == "app_rate_limited":
            team_id = get_text(taken.body, "team_id")
            log.warning("slack: workspace %s had more events than Slack delivers in an hour", team_id)
            self._on_events_dropped()
            return web.Response()
        return await to_aiohttp_response(await self._bolt.async_dispatch(taken))


_NAMES = ("type", "command", "callback_id", "action_id")
_IDS = ("team_id", "enterprise_id", "user_id", "channel_id", "thread_ts")


def _has_known_shape(taken: AsyncBoltRequest) -> bool:
    """Whether Bolt can find the listeners of the payload. Bolt fails if one of these fields is not a string."""
    body, context = cast(JsonObject, taken.body), cast(dict[str, object], taken.context)
    names = [body[name] for name in _NAMES if body.get(name) is not None]
    if "event" in body:
        names.append(get_object(body, "event").get("type"))
    if body.get("type") == "block_actions":
        actions = get_objects(body, "actions")
        names += [action.get("action_id") for action in actions] or [None]
    if body.get("type") in ("view_submission", "view_closed"):
        view = get_object(body, "view")
        names += [view.get("callback_id"), view.get("type")]
    ids = [context[name] for name in _IDS if name in context]
    return all(isinstance(name, str) for name in (*names, *ids))


def is_signature_valid(raw: bytes, timestamp: str, signature: str, secret: bytes, *, now: float) -> bool:
    """Whether Slack signed the body within the last five minutes. Compares in constant time."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > limits.EVENT_AGE_SECONDS_MAX:
        return False
    base = b"v0:" + timestamp.encode() + b":" + raw
    expected = "v0=" + hmac.new(secret, base, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode(errors="replace"))


def is_ssl_check(raw: bytes) -> bool:
    """Whether the request is Slack's certificate check, which is unsigned and needs no action."""
    return len(raw) < 1000 and parse_qs(raw.decode(errors="replace")).get("ssl_check") == ["1"]


PING_SECONDS = 5.0


class _SdkTasks(Protocol):
    message_processor: asyncio.Future[None] | None
    message_receiver: asyncio.Future[None] | None
    current_session_monitor: asyncio.Future[None] | None


class SocketModeTransport:
    """Runs Bolt's Socket Mode connection, with a watchdog for reconnects that the SDK would retry forever.

    Calls `on_connection_state` every few seconds."""

    def __init__(
        self, client: SlackClient, bolt: AsyncApp, app_token: str, on_connection_state: Callable[[bool], None]
    ) -> None:
        self._client = client
        self._app_token = app_token
        self._bolt = bolt
        self._on_connection_state = on_connection_state
        self._handler: AsyncSocketModeHandler | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects. Raises ConfigurationError if Slack refuses the app token, because the SDK would retry forever."""
        answer = await self._client.call_at_startup(
            "apps.connections.open", setting="THREADHAND_SLACK_APP_TOKEN", token=self._app_token
        )
        self._handler = AsyncSocketModeHandler(
            self._bolt, self._app_token, web_client=self._client.web, ping_interval=PING_SECONDS
        )
        connection = self._handler.client
        connection.proxy = self._client.proxy
        connection.wss_uri = get_text(answer, "url")
        await self._handler.connect_async()
        self._watch = spawn(self._keep_fresh(), name="slack-socket-watch")

    async def is_connected(self) -> bool:
        return self._handler is not None and await self._handler.client.is_connected()

    async def _keep_fresh(self) -> None:
        """Clears the URL of a lost connection, because the URL is valid only once but the SDK would use it again."""
        while self._handler is not None:
            await asyncio.sleep(PING_SECONDS)
            connection = self._handler.client
            is_connected = await connection.is_connected()
            self._on_connection_state(is_connected)
            if not is_connected:
                log.info("slack: the socket is down, reconnecting")
                connection.wss_uri = None

    async def close(self) -> None:
        """Closes the connection. Slack redelivers events that it sends in the meantime."""
        if self._watch:
            await cancel(self._watch)
        if self._handler:
            await self._handler.close_async()
            # the SDK cancels its tasks without waiting for them
            loose = cast(_SdkTasks, self._handler.client)
            tasks = (loose.message_processor, loose.message_receiver, loose.current_session_monitor)
            await asyncio.wait([task for task in tasks if task is not None])
            self._handler = None
