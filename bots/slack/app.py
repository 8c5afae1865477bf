"""The Slack app: receives events over Socket Mode or HTTP and stores them before it acknowledges them."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import aiohttp
from aiohttp import web

from bots.delivery.rate_limiter import RateLimiter
from bots.inbound.actions import Admits, Receive
from bots.inbound.home import GreetingsAndHome
from bots.inbound.retry_buffer import RetryBuffer
from bots.inbound.schedules import TriggerEventHandler
from bots.slack.events.backfill import Backfill
from bots.slack.events.bolt import build_bolt_app
from bots.slack.events.cursors import ChannelCursors
from bots.slack.events.handler import EventHandler
from bots.slack.events.transports import HttpTransport, SocketModeTransport
from bots.slack.install.manifest import EVENTS_PATH
from bots.slack.install.routes import InstallFlow
from bots.slack.install.tokens import TokenSource
from bots.slack.surface import SlackSurface
from bots.slack.web_api.client import API_URL, Identity, SlackClient
from bots.slack.web_api.downloads import SlackFiles
from bots.slack.web_api.thread_history import SlackThreadHistory
from bots.slack.web_api.users import UserLookup
from bots.slack.workspaces import Workspaces
from core.domain.actions import ActorContext
from core.domain.errors import ConfigurationError
from core.domain.threads import Address
from core.stores import Conversations, Inbox

log = logging.getLogger(__name__)


OnWorkspaceUninstall = Callable[[str, str], Awaitable[None]]
"""A callback that receives the platform and the id of a workspace that removed the app."""


class SlackApp:
    """Serves one workspace (with `bot_token`) or every workspace that installed the app (with `tokens`).

    `receive` handles user actions. Without it, the app only posts, as in a worker. `hear` handles other events in
    channels. `admits` returns whether an author has access, before a message is parsed, and `conversations` finds the
    bot's conversations. With `app_token`, events arrive over Socket Mode, with `signing_secret`, over HTTP. `groups`
    are the user groups whose members must be known. `on_uninstall` is called after a workspace removed the app. `inbox`
    stores the channel cursors. With it, messages that were missed while the app was offline are backfilled. With
    `greetings`, the app greets users and channels, and draws the App Home."""

    def __init__(
        self,
        *,
        bot_token: str,
        app_token: str | None = None,
        signing_secret: str | None = None,
        api_url: str = API_URL,
        receive: Receive | None = None,
        hear: TriggerEventHandler | None = None,
        admits: Admits | None = None,
        conversations: Conversations | None = None,
        trace: aiohttp.TraceConfig | None = None,
        groups: Sequence[str] = (),
        tokens: TokenSource | None = None,
        on_uninstall: OnWorkspaceUninstall | None = None,
        install: InstallFlow | None = None,
        limiter: RateLimiter | None = None,
        inbox: Inbox | None = None,
        greetings: GreetingsAndHome | None = None,
    ) -> None:
        if receive and not (app_token or signing_secret):
            raise ConfigurationError(
                "Slack needs a way in: set THREADHAND_SLACK_APP_TOKEN for Socket Mode"
                " or THREADHAND_SLACK_SIGNING_SECRET for HTTP mode."
            )
        new_client = partial(SlackClient, api_url=api_url, trace=trace, limiter=limiter)
        self._client = new_client(bot_token=bot_token)
        self._app_token = app_token
        self._on_uninstall = on_uninstall
        self._install = install
        cursors = ChannelCursors(inbox) if inbox else None

        def new_event_handler(client: SlackClient, people: UserLookup) -> EventHandler | None:
            if receive is None:
                return None
            return EventHandler(
                client,
                people,
                receive,
                groups,
                hear=hear,
                admits=admits,
                conversations=conversations,
                sign_file=self._workspaces.sign_file,
                cursors=cursors,
                greetings=greetings,
            )

        self._workspaces = Workspaces(
            tokens=tokens, new_client=lambda token: new_client(bot_token=token), new_event_handler=new_event_handler
        )
        self._retry_buffer = RetryBuffer("slack")
        self._backfill = Backfill(inbox, cursors, self._workspaces) if inbox and cursors else None
        self._workspace = self._workspaces.build_workspace(self._client)
        self.surface = SlackSurface(self._workspaces.client_for)
        self.files = SlackFiles(self._workspaces.client_for_file)
        self.thread_history = SlackThreadHistory(self._workspaces)
        self._http = HttpTransport(signing_secret) if signing_secret else None
        self._socket: SocketModeTransport | None = None

    @property
    def identity(self) -> Identity:
        """The identity of the bot if one token is configured. Raises RuntimeError before `start`."""
        return self._client.identity

    async def fetch_actor_context(self, address: Address, person_id: str) -> ActorContext:
        """Returns what the workspace reports about a user. Raises SurfaceError or StorageUnavailable."""
        handler = (await self._workspaces.require_for_address(address)).event_handler
        return await handler.fetch_actor_context(address, person_id) if handler else ActorContext(is_known=False)

    async def is_connected(self) -> bool:
        """Whether Slack can deliver events now. Always true in HTTP mode, which has no connection."""
        if not self._app_token:
            return True
        return self._socket is not None and await self._socket.is_connected()

    async def start(self) -> None:
        """Checks the tokens, then receives events. Raises ConfigurationError, whose message names the remedy."""
        await self.sign_in()
        try:
            if self._workspace.event_handler is not None:
                bolt = build_bolt_app(self._client, self._workspaces, self._handle_uninstall, self._retry_buffer)
                if self._backfill:
                    self._backfill.pause_cursors()
                if self._http:
                    on_dropped = self._backfill.start if self._backfill else lambda: None
                    self._http.start(bolt, on_dropped)
                if self._app_token:
                    self._socket = SocketModeTransport(self._client, bolt, self._app_token, self._on_connection_state)
                    await self._socket.open()
                if self._backfill:
                    self._backfill.start()
        except BaseException:
            await self.close()
            raise
        if self._client.bot_token:
            log.info("slack: connected as %s in %s", self.identity.user_id, self.identity.team_id)
        else:
            log.info("slack: connected for the workspaces that have installed the bot")

    async def sign_in(self) -> None:
        """Checks the token without receiving events, for a process that only reads files and threads."""
        if not self._client.bot_token:
            self._client.open_session()
            return
        identity = await self._client.sign_in()
        self._workspaces.add(identity.team_id, self._workspace)

    def _on_connection_state(self, is_connected: bool) -> None:
        if self._backfill:
            self._backfill.on_connection_state(is_connected=is_connected)

    async def _handle_uninstall(self, team_id: str) -> None:
        """Ends the runs of a workspace that removed the app, and forgets its token."""
        if self._on_uninstall is not None:
            await self._on_uninstall("slack", team_id)
        await self._workspaces.remove(team_id)

    async def close(self) -> None:
        """Stops receiving events, waits for notices in progress, and closes every connection."""
        if self._http:
            self._http.stop()
        if self._socket:
            await self._socket.close()
        if self._backfill:
            await self._backfill.close()
        await self._retry_buffer.close()
        await self._workspaces.close()
        if self._workspace.event_handler:
            await self._workspace.event_handler.close()
        await self._client.close()

    def http_routes(self) -> Sequence[web.RouteDef]:
        """Returns the routes for the HTTP server: events (with a signing secret) and installation."""
        events = [web.post(EVENTS_PATH, self._http.handle)] if self._http else []
        return [*events, *(self._install.routes() if self._install else ())]
