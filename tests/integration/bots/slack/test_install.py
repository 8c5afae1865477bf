"""Installing the bot in workspaces over Slack's OAuth, and what one workspace has of another: nothing."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from yarl import URL

from bots.slack.install.tokens import TokenCipher, UnreadableToken
from simulator.slack import SlackSimulator
from simulator.slack.people.interactions import BusyPeople
from tests.integration.bots.slack.installable_app import KEY, InstallableApp, new_browser, opened
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver
from tests.support.narrow import require

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


@pytest.mark.parametrize(
    ("answer", "status", "words"), [({"code": "none"}, 502, ""), ({"error": "access_denied"}, 200, "not installed")]
)
async def test_a_code_that_slack_does_not_confirm_and_a_no_install_nothing(
    installable: InstallableApp, answer: dict[str, str], status: int, words: str
) -> None:
    async with new_browser() as browser:
        async with browser.get(installable.url / "slack/install", allow_redirects=False) as begin:
            state = URL(begin.headers["Location"]).query["state"]
        back = (installable.url / "slack/oauth_redirect").with_query(**answer, state=state)
        shown = await installable.come_back(back, browser)
    assert (shown[0], words in shown[1]) == (status, True)
    assert await installable.stored() == []


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


async def test_a_token_under_an_old_key_is_sealed_with_the_newest(installable: InstallableApp) -> None:
    await installable.install(FIRST)
    before = await installable.tokens.find_token(FIRST)
    newest = Fernet.generate_key().decode()
    old = installable.tokens
    rotated = replace(old, token_cipher=TokenCipher([newest, KEY]))
    assert await rotated.find_token(FIRST) == before
    without = replace(old, token_cipher=TokenCipher([newest]))
    assert await without.find_token(FIRST) == before
    with pytest.raises(UnreadableToken):
        await installable.tokens.find_token(FIRST)
