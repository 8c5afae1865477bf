"""The app for several workspaces, with its pages for installing, in front of a simulated Slack."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from cryptography.fernet import Fernet
from pydantic import SecretStr
from sqlalchemy import text
from yarl import URL

from bots.bootstrap.platforms import build_slack_installs
from bots.bootstrap.process_messaging import Messaging
from bots.bootstrap.stores import Stores
from bots.inbound.actions import Outcome, UserAction
from bots.settings import Settings
from bots.slack.app import SlackApp
from bots.slack.install.tokens import TokenStore
from core import http_shutdown
from core.domain.actions import IncomingMessage
from core.domain.threads import Address
from simulator.slack import SlackSimulator
from simulator.slack.people.interactions import BusyPeople
from storage.sql.database import Database
from tests.contracts.stores import accept
from tests.databases import open_sqlite
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver
from tests.support.waiting import until

KEY = Fernet.generate_key().decode()


@dataclass
class InstallableApp:
    """The app for several workspaces, its two pages, and who comes in."""

    slack: SlackSimulator
    database: Database
    tokens: TokenStore
    app: SlackApp
    receiver: RecordingReceiver
    left: list[tuple[str, str]]
    url: URL

    async def visit(self, team_id: str, browser: aiohttp.ClientSession) -> tuple[int, str, URL]:
        """The way of a browser: to our page, to Slack's, and back; the address of the last step comes along."""
        async with browser.get(self.url / "slack/install", allow_redirects=False) as begin:
            page = URL(begin.headers["Location"])
        async with browser.get(page.update_query(team=team_id), allow_redirects=False) as agreed:
            assert agreed.status == 302, await agreed.text()
            back = URL(agreed.headers["Location"], encoded=True)
        return *(await self.come_back(back, browser)), back

    async def come_back(self, back: URL, browser: aiohttp.ClientSession) -> tuple[int, str]:
        async with browser.get(back) as end:
            return end.status, await end.text()

    async def install(self, team_id: str) -> None:
        async with new_browser() as browser:
            status, told, _ = await self.visit(team_id, browser)
        assert status == 200, told

    async def said(self, people: BusyPeople, person: str, words: str, **more: object) -> Address:
        """Where a mention was heard."""
        before = len(self.receiver.taken)
        await people.say(person, general(people), f"@threadhand {words}", **more)
        await until(lambda: len(self.receiver.taken) > before)
        return self.receiver.taken[-1].address

    async def stored(self) -> list[tuple[str, str]]:
        query = text("SELECT workspace_id, token FROM workspace WHERE token IS NOT NULL ORDER BY workspace_id")
        rows = await self.database.read(lambda c: c.execute(query).all())
        return [(str(row[0]), str(row[1])) for row in rows]


def new_browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@asynccontextmanager
async def opened(
    slack: SlackSimulator,
    receiver: RecordingReceiver,
    folder: Path,
    *,
    allowed: tuple[str, ...],
    groups: tuple[str, ...] = (),
) -> AsyncGenerator[InstallableApp, None]:
    """`allowed` are the workspaces and organisations that may install the bot, `groups` user groups that count."""
    application = web.Application()
    routes = web.RouteTableDef()

    async def through(request: web.Request) -> web.StreamResponse:
        found = next(one for one in app.http_routes() if one.path == request.path)
        return await found.handler(request)

    routes.get("/slack/{page}")(through)
    application.add_routes(routes)
    runner = web.AppRunner(application, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = URL(f"http://127.0.0.1:{runner.addresses[0][1]}")
    database = await open_sqlite(folder / "test.db")
    settings = Settings(
        data_dir=folder,
        slack_client_id=slack.oauth.client_id,
        slack_client_secret=SecretStr(slack.oauth.client_secret),
        slack_api_url=slack.api_url,
        encryption_keys=SecretStr(KEY),
        public_url=str(url),
        allowed_workspaces=allowed,
    )
    stores = Stores(database, Messaging())
    tokens, install = build_slack_installs(settings, stores)

    async def receive(inbound: UserAction) -> Outcome:
        """What is said is stored, as the program does."""
        if isinstance(inbound, IncomingMessage):
            await stores.inbox.accept_action(inbound, accept)
        return await receiver.receive(inbound)

    left: list[tuple[str, str]] = []

    async def leave(platform: str, workspace_id: str) -> None:
        await stores.installations.leave_workspace(platform, workspace_id)
        left.append((platform, workspace_id))

    app = SlackApp(
        bot_token="",
        app_token=slack.settings.app_token,
        api_url=slack.api_url,
        receive=receive,
        groups=groups,
        tokens=tokens,
        install=install,
        on_uninstall=leave,
        inbox=stores.inbox,
    )
    await app.start()
    try:
        yield InstallableApp(slack, database, tokens, app, receiver, left, url)
    finally:
        await app.close()
        await http_shutdown.shut_down_server(runner)
        await database.close()


def general(people: BusyPeople) -> str:
    return people.workspace.channel_names["general"].channel_id
