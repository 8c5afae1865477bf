"""`mcp connect NAME`: a person agrees to a tool server with a private link, and nobody else can take part in it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled
from bots.inbound.commands.admin import ADMINS_ONLY, AdminDeps
from bots.inbound.commands.table import answer_command
from bots.web.errors import error_middleware
from bots.web.mcp_consent import McpConsents, is_safe_authorization_link
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from core.mcp.settings import McpServerConfig
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.workspaces import SqlPairings
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, command_deps
from tests.integration.core.conftest import World
from tests.integration.core.mcp.test_http import AuthorizingServer, authorizing_server
from tests.support.mcp_servers import MakeGuest
from tests.support.mcp_servers import guest_of as guest_of
from tests.support.waiting import until
from tests.support.web import serve_http

PAGE = {"Accept": "text/html"}


@dataclass
class ConsentStage:
    """The bot's server, a tool server that wants authorization, and what was said in the thread."""

    server: AuthorizingServer
    consents: McpConsents
    config: McpServerConfig
    url: str = ""
    said: list[str] = field(default_factory=list[str])
    retried: list[str] = field(default_factory=list[str])
    is_chat_away: bool = False

    async def tell(self, address: Address, text: str) -> None:
        assert address == HERE
        if self.is_chat_away:
            raise SurfaceRefused("it is gone", code="channel_not_found")
        self.said.append(text)

    def link(self, name: str = "fake") -> str:
        notice = self.consents.answer_mcp_connect(command(name)).notice
        assert notice.startswith(f"[Agree that I use `{name}`]"), notice
        return notice.partition("](")[2].partition(")")[0]

    async def until_said(self, words: str) -> None:
        await until(lambda: any(words in one for one in self.said))


def command(name: str) -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key="k", name="mcp", argument=f"connect {name}", person=ALICE)


@asynccontextmanager
async def consent_stage(folder: Path, **settings: float) -> AsyncIterator[ConsentStage]:
    async with authorizing_server() as server:
        config = server.config(token_folder=folder)
        consents = McpConsents(
            configs={"fake": config},
            public_url=lambda: stage.url,
            tell=lambda address, text: stage.tell(address, text),
            retry=lambda name: stage.retried.append(name),
            **settings,
        )
        stage = ConsentStage(server, consents, config)
        app = web.Application(middlewares=[error_middleware])
        app.add_routes(consents.routes())
        async with serve_http(app) as stage.url:
            try:
                yield stage
            finally:
                await consents.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ConsentStage]:
    async with consent_stage(tmp_path) as made:
        yield made


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), headers=PAGE)


async def begin(person: aiohttp.ClientSession, link: str) -> str:
    """Presses the button. Returns the link of the authorization server."""
    async with person.post(link, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def agree(person: aiohttp.ClientSession, asked: str) -> str:
    """Agrees there. Returns the address that the browser is sent back to."""
    async with person.get(asked, allow_redirects=False) as answer:
        return answer.headers["Location"]


async def test_a_person_agrees_and_runs_have_the_tools(stage: ConsentStage, guest_of: MakeGuest) -> None:
    link = stage.link()
    async with browser() as person:
        for _ in range(3):  # chat platforms open links, too
            async with person.get(link) as shown:
                assert (shown.status, '<form method="post">' in await shown.text()) == (200, True)
        assert stage.server.asked == []
        async with person.post(link) as shown:  # follows every redirect, as browsers do
            assert "fake is connected and offers 1 tools" in await shown.text()
    await stage.until_said("`fake` is connected and offers 1 tools")
    assert stage.retried == ["fake"]
    assert await guest_of(stage.config).look() == ["mcp_fake_echo"]
    assert stage.server.asked == ["register", "consent", "authorization_code"]


async def test_a_link_works_once(stage: ConsentStage) -> None:
    link = stage.link()
    async with browser() as person:
        back = await agree(person, await begin(person, link))
        async with person.get(back) as shown:
            assert shown.status == 200
        for again in (person.get(link), person.post(link), person.get(back)):
            async with again as answer:
                assert answer.status == 410
                assert "This link was used already" in await answer.text()
    assert stage.server.asked.count("authorization_code") == 1


async def test_a_newer_link_ends_the_older_one(stage: ConsentStage) -> None:
    older, newer = stage.link(), stage.link()
    async with browser() as person:
        async with person.post(older) as answer:
            assert answer.status == 410
        assert (await begin(person, newer)).startswith(stage.server.origin)


async def test_another_browser_gets_nowhere(stage: ConsentStage) -> None:
    link = stage.link()
    async with browser() as person, browser() as other:
        asked = await begin(person, link)
        back = await agree(person, asked)
        for tried in (other.get(link), other.post(link), other.get(back)):
            async with tried as answer:
                assert answer.status == 403
        assert stage.server.asked.count("authorization_code") == 0
        async with person.get(back) as shown:  # and it has spoilt nothing
            assert "is connected" in await shown.text()


@pytest.mark.parametrize("state", ["", "guessed", None])
async def test_a_guessed_state_is_refused(stage: ConsentStage, state: str | None) -> None:
    async with browser() as person:
        waiting = stage.link()  # which has no state yet
        query = urlencode({"code": "code"} | ({} if state is None else {"state": state}))
        for _ in range(2):
            async with person.get(f"{stage.url}/mcp/callback?{query}") as answer:
                assert answer.status == 410
            await begin(person, waiting)
    assert stage.server.asked.count("authorization_code") == 0


async def test_the_answer_of_another_issuer_is_refused(stage: ConsentStage) -> None:
    async with browser() as person:
        back = await agree(person, await begin(person, stage.link()))
        async with person.get(f"{back}&iss=https%3A%2F%2Felsewhere.example") as shown:
            assert "fake is not connected" in await shown.text()
    assert stage.server.asked.count("authorization_code") == 0


@pytest.mark.parametrize("error", ["<script>alert(1)</script>", "a\n<!channel> [x](https://x.example)"])
async def test_an_error_is_text_and_nothing_else(stage: ConsentStage, error: str) -> None:
    async with browser() as person:
        state = parse_qs(urlsplit(await begin(person, stage.link())).query)["state"][0]
        query = urlencode({"error": error, "state": state, "next": "https://x.example"})
        async with person.get(f"{stage.url}/mcp/callback?{query}", allow_redirects=False) as shown:
            text = await shown.text()
            assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    assert (shown.status, "Location" in shown.headers) == (200, False)
    assert "gave no consent" in text
    assert "<script>" not in text
    assert "<!channel>" not in text
    await stage.until_said("gave no consent")


async def test_an_old_link_is_told(tmp_path: Path) -> None:
    async with consent_stage(tmp_path, consent_seconds=0.05) as stage, browser() as person:
        link = stage.link()
        await stage.until_said("the link has expired")
        async with person.post(link) as answer:
            assert answer.status == 410


@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest",
        "https://10.0.0.1/consent",
        "https://user@tickets.example/consent",
        "http://[::1]/consent",
    ],
)
async def test_a_server_sends_nobody_into_a_private_network(stage: ConsentStage, place: str) -> None:
    stage.server.consent_place = place
    async with browser() as person, person.post(stage.link(), allow_redirects=False) as shown:
        assert (shown.status, "Location" in shown.headers) == (200, False)
        assert "sends people to an address that is not opened" in await shown.text()


@pytest.mark.parametrize(
    ("link", "is_usable"),
    [
        ("https://1.1.1.1/authorize", True),
        ("https://tickets.example/authorize", True),
        ("http://tickets.example/authorize", False),
        ("http://1.1.1.1/authorize", False),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("https://127.0.0.1/", False),
        ("https://[fd00::1]/", False),
        ("https://0x7f000001/", False),
        ("//tickets.example", False),
        ("", False),
    ],
)
async def test_links_of_a_public_server(link: str, is_usable: bool) -> None:
    assert await is_safe_authorization_link(link, "https://tickets.example/mcp") is is_usable


async def test_a_failed_consent_keeps_the_client_and_tokens_there_are(
    stage: ConsentStage, guest_of: MakeGuest, tmp_path: Path
) -> None:
    assert await guest_of(stage.config, authorize=stage.server.person).look() == ["mcp_fake_echo"]
    kept = (tmp_path / "fake.json").read_text()
    stage.server.token, stage.server.refuses = "revoked", True
    async with browser() as person, person.post(stage.link()) as shown:
        assert "is not connected" in await shown.text()
    assert (tmp_path / "fake.json").read_text() == kept
    assert await guest_of(stage.config).look() == []  # nobody is present
    assert (tmp_path / "fake.json").read_text() == kept


async def test_only_admins_get_a_link_and_only_for_servers_that_ask(stage: ConsentStage, world: World) -> None:
    admin = AdminDeps(
        policy=AccessPolicy(admins=("U1",)),
        pairings=SqlPairings(world.database),
        audit_log=SqlAuditLog(world.database),
        connect_tools=stage.consents.answer_mcp_connect,
    )
    deps = replace(command_deps(world), admin=admin)
    assert (await answer_command(replace(command("fake"), person=BOB), deps)).notice == ADMINS_ONLY
    assert "[Agree that I use `fake`]" in (await answer_command(command("`fake`"), deps)).notice
    assert "These do: `fake`." in (await answer_command(command("other"), deps)).notice
    public = replace(command("fake"), address=replace(HERE, platform="discord"))
    assert "Everyone here would see the answer" in (await answer_command(public, deps)).notice
    stage.url = ""
    assert "threadhand mcp-login fake" in (await answer_command(command("fake"), deps)).notice


async def test_an_answer_that_comes_twice_at_once_is_taken_once(stage: ConsentStage) -> None:
    async with browser() as person:
        back = await agree(person, await begin(person, stage.link()))
        copies = await asyncio.gather(*(person.get(back) for _ in range(5)))
        assert sorted(one.status for one in copies) == [200, 410, 410, 410, 410]


async def test_a_thread_that_is_gone_spoils_nothing(stage: ConsentStage) -> None:
    stage.is_chat_away = True
    async with browser() as person, person.post(stage.link()) as shown:
        assert "fake is connected" in await shown.text()
