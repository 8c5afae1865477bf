"""The simulated Slack: one HTTP server with the Web API, Socket Mode, files and answers to interactions."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from aiohttp import web

from bots.simulator.faults import Faults
from bots.simulator.slack import seen
from bots.simulator.slack.deliveries import Outbox
from bots.simulator.slack.dispatch import ApiCall, WebApi
from bots.simulator.slack.people import People
from bots.simulator.slack.rates import Rates
from bots.simulator.slack.settings import SlackSettings
from bots.simulator.slack.socket import SocketMode
from bots.simulator.slack.world import Workspace
from bots.simulator.view import PlatformView

_SHUTDOWN_SECONDS = 0.5
_DEFAULTS = SlackSettings()


class SlackSimulator(People):
    """A Slack on 127.0.0.1 with one workspace (`add_workspace` makes more); it is a SimulatedPlatform.

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
        self.workspaces: dict[str, Workspace] = {}
        self.tokens: dict[str, Workspace] = {}
        self._changed = asyncio.Event()
        faults = Faults()
        self.socket_mode = SocketMode("A0SIMULATED")
        outbox = Outbox(self.settings, faults, self.socket_mode)
        self.web_api = WebApi(
            self.settings, faults, self, self.tokens, self.calls, Rates(self.settings.rate_scale)
        )
        self.rates = self.web_api.rates
        first = Workspace("T0SIM0001", self.settings, emit=outbox.emit)
        super().__init__(first, outbox, faults)
        self._adopt(first, self.settings.bot_token)
        self._runner: web.AppRunner | None = None

    def _adopt(self, workspace: Workspace, token: str) -> None:
        workspace.origin = self.origin
        workspace.on_change = self._note_change
        self.workspaces[workspace.team_id] = workspace
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
        application.router.add_route("*", "/api/{method}", self.web_api.handle)
        application.router.add_get("/link/", self.socket_mode.handle)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.origin = self.socket_mode.origin = f"http://127.0.0.1:{self.port}"
        for workspace in self.workspaces.values():
            workspace.origin = self.origin
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.web_api.closing.set()
        await self.outbox.close()
        await self.socket_mode.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _note_change(self) -> None:
        if not self._changed.is_set():
            self._changed.set()

    def view(self) -> PlatformView:
        """See SimulatedPlatform.view."""
        return seen.platform_view(self.workspace, is_connected=self.socket_mode.is_connected())

    async def changes(self) -> AsyncIterator[int]:
        """See SimulatedPlatform.changes."""
        last = -1
        while True:
            if self.workspace.version == last:
                self._changed.clear()
                await self._changed.wait()
                continue
            last = self.workspace.version
            yield last
