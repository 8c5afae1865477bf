"""Socket Mode: one connection that is made again whenever it is lost."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from bots.slack.events.payload import text
from bots.slack.web_api.client import SlackClient
from core.tasks import cancel, spawn

PING_SECONDS = 5.0

log = logging.getLogger(__name__)


class _Loose(Protocol):
    message_processor: asyncio.Future[None] | None
    message_receiver: asyncio.Future[None] | None
    current_session_monitor: asyncio.Future[None] | None


class Socket:
    """Bolt's Socket Mode connection, with a watch over what the SDK would try for ever in vain.

    `seen` is told every few seconds whether it is there.
    """

    def __init__(
        self, client: SlackClient, bolt: AsyncApp, app_token: str, seen: Callable[[bool], None]
    ) -> None:
        self._client = client
        self._app_token = app_token
        self._bolt = bolt
        self._seen = seen
        self._handler: AsyncSocketModeHandler | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects. Raises ConfigurationError for an app token that Slack refuses, which the SDK would try for ever."""
        answer = await self._client.checked(
            "apps.connections.open", setting="THREADHAND_SLACK_APP_TOKEN", token=self._app_token
        )
        self._handler = AsyncSocketModeHandler(
            self._bolt, self._app_token, web_client=self._client.web, ping_interval=PING_SECONDS
        )
        connection = self._handler.client
        connection.proxy = self._client.proxy
        connection.wss_uri = text(answer, "url")
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
            self._seen(is_connected)
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
            loose = cast(_Loose, self._handler.client)
            tasks = (
                loose.message_processor,
                loose.message_receiver,
                loose.current_session_monitor,
            )
            await asyncio.wait([task for task in tasks if task is not None])
            self._handler = None
