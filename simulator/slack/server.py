"""The simulated Slack: one HTTP server with the Web API, Socket Mode, files and answers to interactions."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import TracebackType
from typing import Self

from aiohttp import web

from simulator.faults import Faults
from simulator.serving import HOST, date_answers, start_listening, stop_server
from simulator.slack.events.delivery import Outbox
from simulator.slack.events.http_events import HttpEvents
from simulator.slack.events.socket_mode import SocketMode
from simulator.slack.files import FileServer
from simulator.slack.oauth import OAuth
from simulator.slack.organisation import Organisation
from simulator.slack.people.interactions import BusyPeople
from simulator.slack.people.responses import ResponseServer
from simulator.slack.settings import APP_ID, SlackSettings
from simulator.slack.tenants import Tenants
from simulator.slack.web_api.dispatch import ApiCall, WebApi
from simulator.slack.web_api.rate_limits import Rates
from simulator.slack.world import Workspace

_SHUTDOWN_SECONDS = 0.5
_DEFAULTS = SlackSettings()


class SlackSimulator(BusyPeople):
    """A Slack on 127.0.0.1 with one workspace (`add_workspace` makes more, also in an organisation of
    `add_organisation`); it is a SimulatedPlatform.

    The keywords are the settings that most users choose; `settings` sets all of them and excludes the others.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        settings: SlackSettings = _DEFAULTS,
        bot_token: str = _DEFAULTS.bot_token,
        app_token: str = _DEFAULTS.app_token,
        signing_secret: str = _DEFAULTS.signing_secret,
        events_url: str | None = None,
        people: tuple[str, ...] = _DEFAULTS.people,
        channels: tuple[str, ...] = _DEFAULTS.channels,
        bot_name: str = _DEFAULTS.bot_name,
    ) -> None:
        if settings is _DEFAULTS:
            settings = SlackSettings(
                bot_token=bot_token,
                app_token=app_token,
                signing_secret=signing_secret,
                events_url=events_url,
                people=people,
                channels=channels,
                bot_name=bot_name,
            )
        self.settings = settings
        self._build(port)

    def _build(self, port: int) -> None:
        self.port = port
        self.origin = ""
        self.calls: deque[ApiCall] = deque(maxlen=self.settings.calls_kept)
        self.tenants = Tenants()
        self.workspaces, self.tokens = self.tenants.workspaces, self.tenants.tokens
        self._changed = asyncio.Event()
        self._faults = Faults()
        self.socket_mode = SocketMode(APP_ID, self._faults)
        self.http_events: HttpEvents | None = None
        if self.settings.events_url is not None:
            self.http_events = HttpEvents(self.settings.events_url, self.settings.signing_secret)
        transport = self.http_events or self.socket_mode
        outbox = Outbox(self.settings, self._faults, transport)
        self.web_api = WebApi(self.settings, self._faults, self, self.calls, Rates(self.settings.rate_scale))
        first = Workspace("T0SIM0001", self.settings, emit=outbox.emit)
        super().__init__(first, outbox, self._faults)
        self._adopt(first, self.settings.bot_token)
        self.oauth = OAuth(tenants=self.tenants, outbox=outbox)
        self._runner: web.AppRunner | None = None

    def add_workspace(
        self,
        name: str,
        *,
        bot_token: str = "",
        people: tuple[str, ...] = _DEFAULTS.people,
        channels: tuple[str, ...] = _DEFAULTS.channels,
        organisation: Organisation | None = None,
    ) -> BusyPeople:
        """Another team, and the people in it. Without a token it has not installed the app."""
        if bot_token in self.tokens:
            raise ValueError("each workspace has a bot token of its own")
        settings = replace(self.settings, workspace_name=name, bot_token=bot_token, people=people, channels=channels)
        team_id = f"T0SIM{len(self.workspaces) + 1:04d}"
        if organisation is not None:
            organisation.team_ids.append(team_id)
        workspace = Workspace(team_id, settings, emit=self.outbox.emit, organisation=organisation)
        self._adopt(workspace, bot_token)
        return BusyPeople(workspace, self.outbox, self._faults)

    def add_organisation(self, name: str) -> Organisation:
        """An organisation without workspaces as yet."""
        organisations = self.tenants.organisations
        organisation = Organisation(organisation_id=f"E0SIM{len(organisations) + 1:04d}", name=name)
        organisations[organisation.organisation_id] = organisation
        return organisation

    def _adopt(self, workspace: Workspace, token: str) -> None:
        workspace.origin = self.origin
        workspace.on_change = self._note_change
        self.workspaces[workspace.team_id] = workspace
        if token:
            self.tokens[token] = workspace

    @property
    def api_url(self) -> str:
        """The base URL for slack_sdk's clients."""
        return f"{self.origin}/api/"

    def connection_url(self) -> str:
        """A fresh Socket Mode address."""
        return self.socket_mode.new_url()

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=self.settings.file_bytes_max)
        application.router.add_get("/oauth/v2/authorize", self.oauth.page)
        application.router.add_route("*", "/api/oauth.v2.access", self.oauth.access)
        application.router.add_route("*", "/api/{method}", self.web_api.handle)
        application.router.add_get("/link/", self.socket_mode.handle)
        application.router.add_routes(FileServer(self.tenants).routes(self.web_api.disturbing))
        responses = ResponseServer(self.workspaces)
        answer = self.web_api.disturbing("response_url", responses.handle)
        application.router.add_post("/actions/{team}/{key}", answer)
        date_answers(application, lambda: self.settings.clock_seconds)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self.port = await start_listening(self._runner, self.port)
        self.origin = self.socket_mode.origin = f"http://{HOST}:{self.port}"
        for workspace in self.workspaces.values():
            workspace.origin = self.origin
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.web_api.closing.set()
        await self.outbox.close()
        await self.socket_mode.close()
        if self.http_events is not None:
            await self.http_events.close()
        if self._runner is not None:
            await stop_server(self._runner)

    def _note_change(self) -> None:
        if not self._changed.is_set():
            self._changed.set()

    def configure(self, settings: SlackSettings) -> None:
        """Changes the app's scopes, subscriptions and commands, and the limits of its calls, while the simulator runs.

        Other settings count from the start only.
        """
        self.settings = self.web_api.settings = self.outbox.settings = settings
        self.web_api.rates.scale = settings.rate_scale
        for workspace in self.workspaces.values():
            workspace.settings = replace(
                workspace.settings,
                scopes=settings.scopes,
                subscriptions=settings.subscriptions,
                commands=settings.commands,
                is_history_scarce=settings.is_history_scarce,
            )
            workspace.changed()

    def misbehave(self, fault: str, **settings: str | float | int) -> None:
        """See SimulatedPlatform.misbehave. The connection's faults bite at once, or when one is there.

        What `method` may name: a Web API method, `files.upload`, `files.download` or `response_url`; of deliveries the
        event (`app_mention`, `message` or `message.im`), `interactive` or `slash_commands`.
        """
        if fault == "invalid_session":
            raise ValueError("Slack has no sessions to be invalid: use reconnect or drop_connection")
        self._faults.arm(fault, **settings)
        self.socket_mode.disturb(self._faults)
        self.workspace.changed()

    async def changes(self) -> AsyncGenerator[int]:
        """See SimulatedPlatform.changes."""
        last = -1
        while True:
            if self.workspace.version == last:
                self._changed.clear()
                await self._changed.wait()
                continue
            last = self.workspace.version
            yield last
