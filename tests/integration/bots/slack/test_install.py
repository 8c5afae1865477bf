"""Installing the bot in workspaces over Slack's OAuth, and what one workspace has of another: nothing."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from yarl import URL

from bots.delivery.content import AnswerPart
from bots.slack.install.tokens import TokenCipher
from core.domain.actions import IncomingMessage
from core.domain.errors import RunError, SurfaceRefused
from simulator.slack import SlackSimulator
from simulator.slack.people.interactions import BusyPeople
from simulator.view import SentFile
from tests.integration.bots.slack.installable_app import KEY, InstallableApp, new_browser, opened
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver
from tests.support.narrow import require, require_type
from tests.support.waiting import until

FIRST, SECOND = "T0SIM0001", "T0SIM0002"


@pytest.fixture
def second(slack: SlackSimulator) -> BusyPeople:
    return slack.add_workspace("second", bot_token="xoxb-second", people=("carol",))


@pytest.fixture
async def installable(
    slack: SlackSimulator, second: BusyPeople, receiver: RecordingReceiver, tmp_path: Path
) -> AsyncIterator[InstallableApp]:
    async with opened(slack, receiver, tmp_path, allowed=(FIRST, SECOND)) as installable:
        yield installable


async def test_a_workspace_that_installs_the_bot_has_a_token_of_its_own(installable: InstallableApp) -> None:
    await installable.install(FIRST)
    await installable.install(SECOND)
    stored = await installable.stored()
    assert [team_id for team_id, _ in stored] == [FIRST, SECOND]
    assert all("xoxb" not in token for _, token in stored)
    tokens = {owner.team_id: token for token, owner in installable.slack.tokens.items()}
    for team_id in (FIRST, SECOND):
        access = require(await installable.tokens.find_token(team_id))
        assert (access.token, access.identity.team_id) == (tokens[team_id], team_id)


async def test_the_way_back_serves_once_and_in_its_own_browser_alone(installable: InstallableApp) -> None:
    async with new_browser() as browser, new_browser() as other:
        async with browser.get(installable.url / "slack/install", allow_redirects=False) as begin:
            page = URL(begin.headers["Location"])
            cookie = begin.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        async with browser.get(page, allow_redirects=False) as agreed:
            back = URL(agreed.headers["Location"], encoded=True)
        kept = browser.cookie_jar.filter_cookies(installable.url / "slack")
        assert (await installable.come_back(back, other))[0] == 400
        assert (await installable.come_back(back.update_query(state="forged.9.x"), browser))[0] == 400
        assert await installable.stored() == []
        browser.cookie_jar.update_cookies(kept, installable.url / "slack/")
        assert (await installable.come_back(back, browser))[0] == 200
        browser.cookie_jar.update_cookies(kept, installable.url / "slack/")
        assert (await installable.come_back(back, browser))[0] == 400
    assert len(await installable.stored()) == 1


async def test_a_code_that_slack_does_not_confirm_installs_nothing(installable: InstallableApp) -> None:
    async with new_browser() as browser:
        async with browser.get(installable.url / "slack/install", allow_redirects=False) as begin:
            state = URL(begin.headers["Location"]).query["state"]
        back = (installable.url / "slack/oauth_redirect").with_query(code="none", state=state)
        assert (await installable.come_back(back, browser))[0] == 502
    assert await installable.stored() == []


async def test_a_workspace_that_is_not_named_is_turned_away_and_its_token_given_back(
    installable: InstallableApp,
) -> None:
    third = installable.slack.add_workspace("third", bot_token="xoxb-third", people=("dan",))
    async with new_browser() as browser:
        status, _, _ = await installable.visit(third.workspace.team_id, browser)
    assert status == 403
    assert await installable.stored() == []
    assert third.workspace not in installable.slack.tokens.values()


async def test_each_workspace_is_answered_with_its_own_token(installable: InstallableApp, second: BusyPeople) -> None:
    await installable.install(FIRST)
    await installable.install(SECOND)
    here = await installable.said(installable.slack, "alice", "hello")
    there = await installable.said(second, "carol", "hello")
    assert (here.workspace_id, there.workspace_id) == (FIRST, SECOND)
    for address in (here, there):
        answer = AnswerPart(markdown=f"for {address.workspace_id}")
        await installable.app.surface.post(address, answer, delivery_id=address.workspace_id)
    posts = [call for call in installable.slack.calls if call.method == "chat.postMessage"]
    assert [(call.team_id, call.arguments["channel"]) for call in posts] == [
        (FIRST, here.channel_id),
        (SECOND, there.channel_id),
    ]


async def test_an_address_of_another_workspace_leads_nowhere(installable: InstallableApp) -> None:
    await installable.install(FIRST)
    await installable.install(SECOND)
    here = await installable.said(installable.slack, "alice", "hello")
    forged = replace(here, workspace_id=SECOND)
    with pytest.raises(SurfaceRefused, match="channel_not_found"):
        await installable.app.surface.post(forged, AnswerPart(markdown="x"), delivery_id="d")
    unknown = replace(here, workspace_id="T0NOBODY")
    with pytest.raises(SurfaceRefused, match="not installed"):
        await installable.app.surface.post(unknown, AnswerPart(markdown="x"), delivery_id="d")


async def test_a_file_of_one_workspace_is_not_opened_for_another(installable: InstallableApp) -> None:
    await installable.install(FIRST)
    await installable.install(SECOND)
    sent = SentFile(name="a.csv", content=b"secret", mime_type="text/csv")
    await installable.said(installable.slack, "alice", "read", files=[sent])
    message = require_type(installable.receiver.taken[-1], IncomingMessage)
    (file,) = message.files
    pieces = [piece async for piece in installable.app.files.open(file, bytes_max=100)]
    assert b"".join(pieces) == b"secret"
    for team_id in (SECOND, "T0NOBODY"):
        forged = replace(file, file_ref=file.file_ref.replace(FIRST, team_id, 1))
        with pytest.raises(RunError):
            _ = [piece async for piece in installable.app.files.open(forged, bytes_max=100)]


async def test_who_takes_the_bot_away_is_not_heard_any_more(installable: InstallableApp, second: BusyPeople) -> None:
    await installable.install(FIRST)
    await installable.install(SECOND)
    here = await installable.said(installable.slack, "alice", "hello")
    installable.slack.oauth.uninstall(FIRST)
    await until(lambda: installable.left)
    await installable.said(second, "carol", "still here?")
    assert set(installable.left) == {("slack", FIRST)}
    assert [team_id for team_id, _ in await installable.stored()] == [SECOND]
    with pytest.raises(SurfaceRefused, match="not installed"):
        await installable.app.surface.post(here, AnswerPart(markdown="x"), delivery_id="d")


async def test_a_token_that_expires_soon_is_refreshed_and_kept(installable: InstallableApp) -> None:
    installable.slack.oauth.lifetime_seconds = 60
    await installable.install(FIRST)
    ((_, sealed),) = await installable.stored()
    installable.slack.oauth.lifetime_seconds = 43_200
    access = require(await installable.tokens.find_token(FIRST))
    assert installable.slack.tokens[access.token].team_id == FIRST
    ((_, newer),) = await installable.stored()
    assert newer != sealed
    again = await installable.tokens.find_token(FIRST)
    assert again == access


async def test_two_installations_in_two_tabs_of_a_browser_both_work(installable: InstallableApp) -> None:
    async with new_browser() as browser:
        ways_back: list[URL] = []
        for _ in range(2):
            start = installable.url / "slack/install"
            async with browser.get(start, allow_redirects=False) as begin:
                page = URL(begin.headers["Location"])
            async with browser.get(page, allow_redirects=False) as agreed:
                ways_back.append(URL(agreed.headers["Location"], encoded=True))
        for back in ways_back:
            assert (await installable.come_back(back, browser))[0] == 200


async def test_who_declines_installs_nothing(installable: InstallableApp) -> None:
    async with new_browser() as browser:
        async with browser.get(installable.url / "slack/install", allow_redirects=False) as begin:
            state = URL(begin.headers["Location"]).query["state"]
        back = (installable.url / "slack/oauth_redirect").with_query(error="access_denied", state=state)
        assert "not installed" in (await installable.come_back(back, browser))[1]
    assert await installable.stored() == []


async def test_a_token_under_an_old_key_is_sealed_with_the_newest(installable: InstallableApp) -> None:
    await installable.install(FIRST)
    before = await installable.tokens.find_token(FIRST)
    newest = Fernet.generate_key().decode()
    old = installable.tokens
    rotated = replace(old, token_cipher=TokenCipher([newest, KEY]))
    assert await rotated.find_token(FIRST) == before
    without = replace(old, token_cipher=TokenCipher([newest]))
    assert await without.find_token(FIRST) == before
    assert await installable.tokens.find_token(FIRST) is None
