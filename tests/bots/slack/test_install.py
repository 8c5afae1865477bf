"""Installing the bot in workspaces over Slack's OAuth, and what one workspace has of another: nothing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from pydantic import SecretStr
from sqlalchemy import text
from yarl import URL

from bots.inbound import IncomingMessage
from bots.rendering.content import AnswerPart
from bots.settings import Settings
from bots.simulator.slack import SlackSimulator
from bots.simulator.slack.interactions import BusyPeople
from bots.simulator.view import SentFile
from bots.slack.app import SlackApp
from bots.slack.tokens import StoredTokens
from bots.slack.vault import Vault
from bots.slack_installs import InstallDesk
from bots.warehouse import Stores
from bots.wires import Wires
from core import serving
from core.errors import AgentError, SurfaceRefused
from core.threads import Address
from storage.database import Database
from storage.opening import open_database
from tests.bots.slack.scene import Desk, eventually

KEY = Fernet.generate_key().decode()
FIRST, SECOND = "T0SIM0001", "T0SIM0002"


@dataclass
class Shop:
    """The app for several workspaces, its two pages, and who comes in."""

    slack: SlackSimulator
    second: BusyPeople
    database: Database
    installs: InstallDesk
    app: SlackApp
    desk: Desk
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

    async def stored(self) -> list[tuple[str, str]]:
        query = text("SELECT workspace_id, token FROM workspace ORDER BY workspace_id")
        rows = await self.database.read(lambda c: c.execute(query).all())
        return [(str(row[0]), str(row[1])) for row in rows]


def new_browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@pytest.fixture
async def shop(slack: SlackSimulator, desk: Desk, tmp_path: Path) -> AsyncIterator[Shop]:
    second = slack.add_workspace("second", bot_token="xoxb-second", people=("carol",))
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
    database = await open_database(f"sqlite:///{tmp_path}/test.db")
    settings = Settings(
        data_dir=tmp_path,
        slack_client_id=slack.oauth.client_id,
        slack_client_secret=SecretStr(slack.oauth.client_secret),
        slack_api_url=slack.api_url,
        encryption_keys=SecretStr(KEY),
        public_url=str(url),
        allowed_workspaces=(FIRST, SECOND),
    )
    installs = InstallDesk(settings, Stores(database, Wires()))
    left: list[tuple[str, str]] = []

    async def leave(platform: str, workspace_id: str) -> None:
        await Stores(database, Wires()).installations.leave(platform, workspace_id)
        left.append((platform, workspace_id))

    app = SlackApp(
        bot_token="",
        app_token=slack.settings.app_token,
        api_url=slack.api_url,
        receive=desk.receive,
        tokens=installs.tokens,
        install=installs.install,
        left=leave,
    )
    await app.start()
    yield Shop(slack, second, database, installs, app, desk, left, url)
    await app.close()
    await serving.end(runner)
    await database.close()


def general(people: BusyPeople) -> str:
    return people.workspace.channel_names["general"].channel_id


async def said(shop: Shop, people: BusyPeople, person: str, words: str, **more: object) -> Address:
    before = len(shop.desk.taken)
    await people.say(person, general(people), f"@threadhand {words}", **more)
    await eventually(lambda: len(shop.desk.taken) > before)
    return shop.desk.taken[-1].address


async def test_a_workspace_that_installs_the_bot_has_a_token_of_its_own(shop: Shop) -> None:
    await shop.install(FIRST)
    await shop.install(SECOND)
    stored = await shop.stored()
    assert [team_id for team_id, _ in stored] == [FIRST, SECOND]
    assert all("xoxb" not in token for _, token in stored)
    tokens = {owner.team_id: token for token, owner in shop.slack.tokens.items()}
    for team_id in (FIRST, SECOND):
        access = await shop.installs.tokens.access(team_id)
        assert access is not None
        assert (access.token, access.identity.team_id) == (tokens[team_id], team_id)


async def test_the_way_back_serves_once_and_in_its_own_browser_alone(shop: Shop) -> None:
    async with new_browser() as browser, new_browser() as other:
        async with browser.get(shop.url / "slack/install", allow_redirects=False) as begin:
            page = URL(begin.headers["Location"])
            cookie = begin.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        async with browser.get(page, allow_redirects=False) as agreed:
            back = URL(agreed.headers["Location"], encoded=True)
        kept = browser.cookie_jar.filter_cookies(shop.url / "slack")
        assert (await shop.come_back(back, other))[0] == 400
        assert (await shop.come_back(back.update_query(state="forged.9.x"), browser))[0] == 400
        assert await shop.stored() == []
        browser.cookie_jar.update_cookies(kept, shop.url / "slack/")
        assert (await shop.come_back(back, browser))[0] == 200
        browser.cookie_jar.update_cookies(kept, shop.url / "slack/")
        assert (await shop.come_back(back, browser))[0] == 400
    assert len(await shop.stored()) == 1


async def test_a_code_that_slack_does_not_confirm_installs_nothing(shop: Shop) -> None:
    async with new_browser() as browser:
        async with browser.get(shop.url / "slack/install", allow_redirects=False) as begin:
            state = URL(begin.headers["Location"]).query["state"]
        back = (shop.url / "slack/oauth_redirect").with_query(code="none", state=state)
        assert (await shop.come_back(back, browser))[0] == 502
    assert await shop.stored() == []


async def test_who_declines_installs_nothing(shop: Shop) -> None:
    async with new_browser() as browser:
        async with browser.get(shop.url / "slack/install", allow_redirects=False) as begin:
            state = URL(begin.headers["Location"]).query["state"]
        back = (shop.url / "slack/oauth_redirect").with_query(error="access_denied", state=state)
        assert "not installed" in (await shop.come_back(back, browser))[1]
    assert await shop.stored() == []


async def test_a_workspace_that_is_not_named_is_turned_away_and_its_token_given_back(
    shop: Shop,
) -> None:
    third = shop.slack.add_workspace("third", bot_token="xoxb-third", people=("dan",))
    async with new_browser() as browser:
        status, _, _ = await shop.visit(third.workspace.team_id, browser)
    assert status == 403
    assert await shop.stored() == []
    assert third.workspace not in shop.slack.tokens.values()


async def test_each_workspace_is_answered_with_its_own_token(shop: Shop) -> None:
    await shop.install(FIRST)
    await shop.install(SECOND)
    here = await said(shop, shop.slack, "alice", "hello")
    there = await said(shop, shop.second, "carol", "hello")
    assert (here.workspace_id, there.workspace_id) == (FIRST, SECOND)
    for address in (here, there):
        answer = AnswerPart(markdown=f"for {address.workspace_id}")
        await shop.app.surface.post(address, answer, delivery_id=address.workspace_id)
    posts = [call for call in shop.slack.calls if call.method == "chat.postMessage"]
    assert [(call.team_id, call.arguments["channel"]) for call in posts] == [
        (FIRST, here.channel_id),
        (SECOND, there.channel_id),
    ]


async def test_an_address_of_another_workspace_leads_nowhere(shop: Shop) -> None:
    await shop.install(FIRST)
    await shop.install(SECOND)
    here = await said(shop, shop.slack, "alice", "hello")
    forged = replace(here, workspace_id=SECOND)
    with pytest.raises(SurfaceRefused, match="channel_not_found"):
        await shop.app.surface.post(forged, AnswerPart(markdown="x"), delivery_id="d")
    unknown = replace(here, workspace_id="T0NOBODY")
    with pytest.raises(SurfaceRefused, match="not installed"):
        await shop.app.surface.post(unknown, AnswerPart(markdown="x"), delivery_id="d")


async def test_a_file_of_one_workspace_is_not_opened_for_another(shop: Shop) -> None:
    await shop.install(FIRST)
    await shop.install(SECOND)
    sent = SentFile(name="a.csv", content=b"secret", mime_type="text/csv")
    await said(shop, shop.slack, "alice", "read", files=[sent])
    message = shop.desk.taken[-1]
    assert isinstance(message, IncomingMessage)
    (file,) = message.files
    pieces = [piece async for piece in shop.app.files.open(file, bytes_max=100)]
    assert b"".join(pieces) == b"secret"
    for team_id in (SECOND, "T0NOBODY"):
        forged = replace(file, file_ref=file.file_ref.replace(FIRST, team_id, 1))
        with pytest.raises(AgentError):
            _ = [piece async for piece in shop.app.files.open(forged, bytes_max=100)]


async def test_who_takes_the_bot_away_is_not_heard_any_more(shop: Shop) -> None:
    await shop.install(FIRST)
    await shop.install(SECOND)
    here = await said(shop, shop.slack, "alice", "hello")
    shop.slack.oauth.uninstall(FIRST)
    await eventually(lambda: shop.left)
    await said(shop, shop.second, "carol", "still here?")
    assert set(shop.left) == {("slack", FIRST)}
    assert [team_id for team_id, _ in await shop.stored()] == [SECOND]
    with pytest.raises(SurfaceRefused, match="not installed"):
        await shop.app.surface.post(here, AnswerPart(markdown="x"), delivery_id="d")


async def test_a_token_that_expires_soon_is_refreshed_and_kept(shop: Shop) -> None:
    shop.slack.oauth.lifetime_seconds = 60
    await shop.install(FIRST)
    ((_, sealed),) = await shop.stored()
    shop.slack.oauth.lifetime_seconds = 43_200
    access = await shop.installs.tokens.access(FIRST)
    assert access is not None
    assert shop.slack.tokens[access.token].team_id == FIRST
    ((_, newer),) = await shop.stored()
    assert newer != sealed
    again = await shop.installs.tokens.access(FIRST)
    assert again == access


async def test_a_token_under_an_old_key_is_sealed_with_the_newest(shop: Shop) -> None:
    await shop.install(FIRST)
    before = await shop.installs.tokens.access(FIRST)
    newest = Fernet.generate_key().decode()
    old = shop.installs.tokens
    rotated = StoredTokens(
        installations=old.installations, vault=Vault([newest, KEY]), oauth=old.oauth
    )
    assert await rotated.access(FIRST) == before
    without = StoredTokens(installations=old.installations, vault=Vault([newest]), oauth=old.oauth)
    assert await without.access(FIRST) == before
    assert await shop.installs.tokens.access(FIRST) is None
