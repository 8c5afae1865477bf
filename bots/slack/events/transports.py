"""HTTP mode: signed requests of Slack, checked before a byte of them is read as anything else."""

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
from bots.slack.events.payload import get_text
from bots.slack.web_api.client import SlackClient
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

EVENTS_PATH = "/slack/events"


class HttpTransport:
    """The one route that takes events, clicks and Slack's own checks."""

    def __init__(self, signing_secret: str) -> None:
        self._secret = signing_secret.encode()
        self._bolt: AsyncApp | None = None

    def serve(self, bolt: AsyncApp) -> None:
        self._bolt = bolt

    def stop(self) -> None:
        self._bolt = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answers 200 only for what is stored; 401 unsigned, 503 while the app is not up (Slack delivers again)."""
        raw = await request.read()
        if is_ssl_check(raw):
            return web.Response()
        headers = request.headers
        timestamp = headers.get("X-Slack-Request-Timestamp", "")
        signature = headers.get("X-Slack-Signature", "")
        if not is_signature_valid(raw, timestamp, signature, self._secret, now=time.time()):
            log.warning("slack: a request with a wrong or old signature was refused")
            return web.Response(status=401)
        if self._bolt is None:
            return web.Response(status=503)
        try:
            taken = AsyncBoltRequest(
                body=raw.decode(), query=request.query_string, headers=dict(headers)
            )
        except (ValueError, AttributeError, TypeError, KeyError, IndexError):
            # Bolt looks into the body at once, and expects objects where JSON may have anything.
            return web.Response(status=400)
        return await to_aiohttp_response(await self._bolt.async_dispatch(taken))


def is_signature_valid(
    raw: bytes, timestamp: str, signature: str, secret: bytes, *, now: float
) -> bool:
    """Whether Slack signed the body within the last five minutes; compared in constant time."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now - int(timestamp)) > limits.EVENT_AGE_SECONDS_MAX:
        return False
    base = b"v0:" + timestamp.encode() + b":" + raw
    expected = "v0=" + hmac.new(secret, base, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())


def is_ssl_check(raw: bytes) -> bool:
    """Slack's look at the certificate, which is not signed and asks for nothing."""
    return len(raw) < 1000 and parse_qs(raw.decode(errors="replace")).get("ssl_check") == ["1"]


PING_SECONDS = 5.0


class _SdkTasks(Protocol):
    message_processor: asyncio.Future[None] | None
    message_receiver: asyncio.Future[None] | None
    current_session_monitor: asyncio.Future[None] | None


class SocketModeTransport:
    """Bolt's Socket Mode connection, with a watch over what the SDK would try for ever in vain.

    `seen` is told every few seconds whether it is there.
    """

    def __init__(
        self,
        client: SlackClient,
        bolt: AsyncApp,
        app_token: str,
        on_connection_state: Callable[[bool], None],
    ) -> None:
        self._client = client
        self._app_token = app_token
        self._bolt = bolt
        self._on_connection_state = on_connection_state
        self._handler: AsyncSocketModeHandler | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects. Raises ConfigurationError for an app token that Slack refuses, which the SDK would try for ever."""
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
        """An address of a connection serves once, but the SDK repeats it while connecting fails: it is taken away."""
        while self._handler is not None:
            await asyncio.sleep(PING_SECONDS)
            connection = self._handler.client
            is_connected = await connection.is_connected()
            self._on_connection_state(is_connected)
            if not is_connected:
                log.info("slack: the socket is down, a new connection is being made")
                connection.wss_uri = None

    async def close(self) -> None:
        """Ends the connection; events that come meanwhile are delivered again by Slack."""
        if self._watch:
            await cancel(self._watch)
        if self._handler:
            await self._handler.close_async()
            # `close` cancels the SDK's tasks without waiting for their end.
            loose = cast(_SdkTasks, self._handler.client)
            tasks = (
                loose.message_processor,
                loose.message_receiver,
                loose.current_session_monitor,
            )
            await asyncio.wait([task for task in tasks if task is not None])
            self._handler = None
