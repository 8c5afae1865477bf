"""An organisation installs the bot for all of its workspaces: one token, and still nothing of one in another."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bots.delivery.content import AnswerPart
from bots.inbound.access import NOT_ALLOWED, AccessPolicy, find_refusal_sentence
from bots.slack.install.manifest import BOT_EVENTS, BOT_SCOPES, ORGANISATION_EVENTS
from core.domain.actions import IncomingMessage
from core.domain.errors import RunError, SurfaceRefused
from core.domain.threads import Address
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.people.interactions import BusyPeople
from simulator.view import SentFile
from tests.integration.bots.slack.installable_app import InstallableApp, general, new_browser, opened
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver
from tests.support.narrow import require_type
from tests.support.waiting import until

ALONE, SALES, RESEARCH = "T0SIM0001", "T0SIM0002", "T0SIM0003"
EVERYBODY = "E0SIM0001"
GROUP = "S0RESEARCH"


@dataclass
class Grid:
    """A workspace of its own, and two of an organisation. Carol is in both, dan and erin in one each."""

    slack: SlackSimulator
    sales: BusyPeople
    research: BusyPeople

    def reach(self, *team_ids: str) -> None:
        for team_id in team_ids:
            self.slack.oauth.reach(team_id)


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    """With the rights and events of the manifest for organisations, and no others."""
    events = (*BOT_EVENTS, *ORGANISATION_EVENTS)
    settings = SlackSettings(scopes=BOT_SCOPES, subscriptions=events)
    async with SlackSimulator(settings=settings) as simulator:
        yield simulator


@pytest.fixture
def grid(slack: SlackSimulator) -> Grid:
    organisation = slack.add_organisation("everybody")
    sales = slack.add_workspace("sales", people=("carol", "dan"), organisation=organisation)
    research = slack.add_workspace("research", people=("erin", "carol"), organisation=organisation)
    return Grid(slack, sales, research)


@pytest.fixture
async def installable(grid: Grid, receiver: RecordingReceiver, tmp_path: Path) -> AsyncIterator[InstallableApp]:
    allowed = (ALONE, EVERYBODY)
    async with opened(grid.slack, receiver, tmp_path, allowed=allowed, groups=(GROUP,)) as installable:
        yield installable


async def installed(installable: InstallableApp, grid: Grid) -> None:
    """The organisation has installed the bot, and added it to both workspaces."""
    await installable.install(EVERYBODY)
    grid.reach(SALES, RESEARCH)


async def post(installable: InstallableApp, address: Address, delivery_id: str = "d") -> str:
    return await installable.app.surface.post(address, AnswerPart(markdown="x"), delivery_id=delivery_id)


async def test_one_installation_serves_each_workspace_of_the_organisation(
    installable: InstallableApp, grid: Grid
) -> None:
    await installed(installable, grid)
    assert [owner for owner, _ in await installable.stored()] == [EVERYBODY]
    assert "xoxb" not in (await installable.stored())[0][1]
    assert await installable.tokens.find_token(SALES) is None, "nothing has come from there"
    addresses = [
        await installable.said(grid.sales, "dan", "hello"),
        await installable.said(grid.research, "erin", "hello"),
    ]
    assert [one.workspace_id for one in addresses] == [SALES, RESEARCH]
    assert not any(one.actor.home_id for one in installable.receiver.taken), "nobody is a stranger at home"
    assert [one.channel_id for one in addresses] == [general(grid.sales), general(grid.research)]
    for address in addresses:
        await post(installable, address, address.workspace_id)
    posts = [call for call in installable.slack.calls if call.method == "chat.postMessage"]
    assert [call.team_id for call in posts] == [SALES, RESEARCH]
    # what another process knows, which hears no events
    found = [await installable.tokens.find_token(one) for one in (SALES, RESEARCH, ALONE)]
    assert [one and one.installed_by for one in found] == [EVERYBODY, EVERYBODY, None]
    assert [one and one.identity.organisation_id for one in found] == [EVERYBODY, EVERYBODY, None]


async def test_an_organisation_that_is_not_named_is_turned_away(
    grid: Grid, receiver: RecordingReceiver, tmp_path: Path
) -> None:
    async with opened(grid.slack, receiver, tmp_path, allowed=(ALONE,)) as installable:
        async with new_browser() as browser:
            status, told, _ = await installable.visit(EVERYBODY, browser)
        assert status == 403, told
        assert await installable.stored() == []
        assert grid.slack.tenants.organisations[EVERYBODY].token == "", "it is given back"


async def test_an_organisation_takes_the_bot_out_of_one_workspace(installable: InstallableApp, grid: Grid) -> None:
    await installed(installable, grid)
    here = await installable.said(grid.sales, "dan", "hello")
    there = await installable.said(grid.research, "erin", "hello")
    installable.slack.oauth.leave(SALES)
    await until(lambda: installable.left)
    assert installable.left == [("slack", SALES)]
    with pytest.raises(SurfaceRefused, match="not installed"):
        await post(installable, here)
    await post(installable, there)
    await installable.said(grid.research, "erin", "we go on")


async def test_a_user_group_counts_in_its_own_workspace(installable: InstallableApp, grid: Grid) -> None:
    carol = grid.research.member("carol").user_id
    grid.research.workspace.user_groups[GROUP] = [carol]
    await installed(installable, grid)
    for people in (grid.sales, grid.research):
        await installable.said(people, "carol", "hello")
    assert [one.actor.groups for one in installable.receiver.taken] == [frozenset(), {GROUP}]


async def test_a_workspace_reaches_nothing_of_another_of_its_organisation(
    installable: InstallableApp, grid: Grid
) -> None:
    await installed(installable, grid)
    here = await installable.said(grid.sales, "dan", "hello")
    sent = SentFile(name="a.csv", content=b"secret", mime_type="text/csv")
    there = await installable.said(grid.research, "erin", "read", files=[sent])
    for forged in (
        replace(there, workspace_id=SALES),
        replace(here, channel_id=there.channel_id, thread_key=there.thread_key),
        replace(here, workspace_id=ALONE),
    ):
        with pytest.raises(SurfaceRefused):
            await post(installable, forged)
        with pytest.raises(SurfaceRefused):
            await installable.app.thread_history.read(forged, before=datetime.now(UTC), limit=10)
    message = require_type(installable.receiver.taken[-1], IncomingMessage)
    (file,) = message.files
    pieces = [piece async for piece in installable.app.files.open(file, bytes_max=100)]
    assert b"".join(pieces) == b"secret"
    _, _, bare = file.file_ref.partition("/")
    for ref in (file.file_ref.replace(RESEARCH, SALES, 1), f"{SALES}/{bare}", f"{RESEARCH}/{bare}"):
        forged_file = replace(file, file_ref=ref)
        with pytest.raises(RunError):
            _ = [piece async for piece in installable.app.files.open(forged_file, bytes_max=100)]


async def test_an_organisation_may_install_for_one_of_its_workspaces(
    grid: Grid, receiver: RecordingReceiver, tmp_path: Path
) -> None:
    async with opened(grid.slack, receiver, tmp_path, allowed=(SALES,)) as installable:
        grid.reach(SALES, RESEARCH)
        await installable.install(EVERYBODY)
        for people, person in ((grid.sales, "dan"), (grid.research, "erin")):
            await installable.said(people, person, "hello")
    here, there = receiver.taken
    assert find_refusal_sentence(here, AccessPolicy(workspaces=(SALES,))) is None
    assert find_refusal_sentence(there, AccessPolicy(workspaces=(SALES,))) == NOT_ALLOWED
