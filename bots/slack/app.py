"""The Slack app: Bolt over Socket Mode or signed HTTP requests, with everything stored before it is acknowledged."""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

import aiohttp
from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bots.slack.client import API_URL, Identity, SlackClient
from bots.slack.doorway import Doorway, Receive
from bots.slack.files import SlackFiles
from bots.slack.http import EVENTS_PATH, HttpEvents
from bots.slack.payload import child
from bots.slack.socket import Socket
from bots.slack.surface import SlackSurface
from bots.slack.talk import SlackTalk
from core.errors import ConfigurationError
from core.messages import JsonObject

log = logging.getLogger(__name__)


_Register = Callable[[re.Pattern[str]], Callable[[Callable[..., Awaitable[None]]], object]]


class _Registers(Protocol):
    """Bolt's registration methods, which it leaves half typed."""

    event: _Register
    action: _Register
    view: _Register
    command: _Register
    shortcut: _Register


class SlackApp:
    """One workspace. Without `receive` it only speaks (a worker); with `app_token` it listens by Socket Mode, with
    `signing_secret` at its HTTP routes. `groups`: the user groups whose members it has to know."""

    def __init__(
        self,
        *,
        bot_token: str,
        app_token: str | None = None,
        signing_secret: str | None = None,
        api_url: str = API_URL,
        receive: Receive | None = None,
        trace: aiohttp.TraceConfig | None = None,
        groups: Sequence[str] = (),
    ) -> None:
        if receive and not (app_token or signing_secret):
            raise ConfigurationError(
                "Slack needs a way in: set THREADHAND_SLACK_APP_TOKEN for Socket Mode"
                " or THREADHAND_SLACK_SIGNING_SECRET for HTTP mode."
            )
        self._client = SlackClient(bot_token=bot_token, api_url=api_url, trace=trace)
        self._app_token = app_token
        self.surface = SlackSurface(self._client)
        self.files = SlackFiles(self._client)
        self.talk = SlackTalk(self._client)
        self._doorway = Doorway(self._client, receive, groups) if receive else None
        self._http = HttpEvents(signing_secret) if signing_secret else None
        self._socket: Socket | None = None

    @property
    def identity(self) -> Identity:
        """Who the bot is. Raises RuntimeError before `start`."""
        return self._client.identity

    async def is_connected(self) -> bool:
        """Whether Slack's events arrive just now; over HTTP nobody can tell, so they do."""
        if not self._app_token:
            return True
        return self._socket is not None and await self._socket.is_connected()

    async def start(self) -> None:
        """Checks the tokens, then listens. Raises ConfigurationError with the remedy."""
        identity = await self._client.open()
        try:
            if self._doorway:
                await self._listen(self._doorway, identity)
        except BaseException:
            await self.close()
            raise
        log.info("slack: connected as %s in %s", identity.user_id, identity.team_id)

    async def sign_in(self) -> None:
        """Checks the token, and listens to nothing: for a process that only reads files and threads."""
        await self._client.open()

    async def _listen(self, doorway: Doorway, identity: Identity) -> None:
        bolt = _bolt(self._client, doorway, identity)
        if self._http:
            self._http.serve(bolt)
        if self._app_token:
            self._socket = Socket(self._client, bolt, self._app_token)
            await self._socket.open()

    async def close(self) -> None:
        """Stops listening, waits for what is under way, and closes every connection."""
        if self._http:
            self._http.stop()
        if self._socket:
            await self._socket.close()
        if self._doorway:
            await self._doorway.close()
        await self._client.close()

    def http_routes(self) -> Sequence[web.RouteDef]:
        """The routes of HTTP mode for the program's HTTP server; none without a signing secret."""
        return [web.post(EVENTS_PATH, self._http.handle)] if self._http else []


def _bolt(client: SlackClient, doorway: Doorway, identity: Identity) -> AsyncApp:
    """Bolt, told to process before it responds: what raises is answered 500 and not acknowledged."""

    async def authorize() -> AuthorizeResult:
        # Known since the start: a question to Slack here could fail, and Bolt would drop the event.
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team_id,
            bot_user_id=identity.user_id,
            bot_id=identity.bot_id,
            bot_token=client.bot_token,
        )

    async def on_event(body: dict[str, object]) -> None:
        await doorway.on_event(child(cast(JsonObject, body), "event"))

    async def on_click(ack: AsyncAck, body: dict[str, object]) -> None:
        await doorway.on_click(cast(JsonObject, body))
        await ack()

    async def on_other(ack: AsyncAck) -> None:
        await ack()

    app = AsyncApp(
        name="threadhand",  # without a name Bolt reads the source of everything that is imported
        client=client.tokenless(),
        authorize=authorize,
        process_before_response=True,
        request_verification_enabled=False,  # bots.slack.http does it, in Socket Mode nobody needs to
        attaching_conversation_kwargs_enabled=False,
    )
    on = cast(_Registers, app)
    anything = re.compile(".*")
    on.event(anything)(on_event)
    on.action(anything)(on_click)
    for register in (on.view, on.command, on.shortcut):
        register(anything)(on_other)
    return app
