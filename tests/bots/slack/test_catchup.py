"""What is said while nobody listens is read at the next start, and taken once."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from bots.inbound import CommandCalled, Inbound, IncomingMessage, Outcome, RunButtonPressed
from bots.reception import arrival_of
from bots.rendering.content import AnswerPart
from bots.simulator.slack import SlackSettings, SlackSimulator
from bots.simulator.slack.happenings import posted_event, subscription_of
from bots.simulator.slack.interactions import BusyPeople
from bots.slack.app import SlackApp
from bots.slack.catchup import AGE_SECONDS_MAX, OVERLAP_SECONDS, CatchUp, gaps_of
from bots.slack.client import SlackClient
from bots.slack.doorway import Doorway
from bots.slack.history import PAGE, PAGES_MAX
from bots.slack.marks import Marks
from bots.slack.teams import Teams
from core import failpoints
from core.threads import Address, Ignore
from storage.inbox import SqlInbox
from storage.opening import open_database
from tests.bots.slack.scene import WAIT_SECONDS, Desk, channel_of, eventually
from tests.bots.slack.shop import opened

UNHEARD = SlackSettings(rate_scale=0, offline_seconds=0.0, channels=("general", "other"))
"""Slack gives an event up at once where nobody listens."""
FIRST, SECOND = "T0SIM0001", "T0SIM0002"


@dataclass
class Office:
    """Decides and stores as the program does; `taken` are the words that would be worked on."""

    inbox: SqlInbox
    taken: list[str] = field(default_factory=list[str])
    calls: int = 0

    async def receive(self, inbound: Inbound) -> Outcome:
        self.calls += 1
        assert not isinstance(inbound, CommandCalled | RunButtonPressed)
        receipt = await self.inbox.accept(*arrival_of(inbound))
        if not receipt.is_duplicate and not isinstance(receipt.decision, Ignore):
            self.taken.append(inbound.text if isinstance(inbound, IncomingMessage) else "(stop)")
        return Outcome()

    async def marks(self) -> dict[str, str]:
        return await self.inbox.cursors("slack")

    async def marked(self, channels: int = 1) -> None:
        """Waits until so many channels have a mark, which is made after what it stands for."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(await self.marks()) < channels:
                await asyncio.sleep(0.01)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    database = await open_database(f"sqlite:///{tmp_path}/test.db")
    yield Office(SqlInbox(database))
    await database.close()


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(settings=UNHEARD) as simulator:
        yield simulator


@asynccontextmanager
async def listening(slack: SlackSimulator, office: Office) -> AsyncGenerator[SlackApp, None]:
    app = SlackApp(
        bot_token=slack.settings.bot_token,
        app_token=slack.settings.app_token,
        api_url=slack.api_url,
        receive=office.receive,
        past=office.inbox,
    )
    await app.start()
    try:
        yield app
    finally:
        await app.close()


async def told(caplog: pytest.LogCaptureFixture, words: str) -> str:
    """The line of the log with the words, once it is there."""
    await eventually(lambda: words in caplog.text)
    return next(line for line in caplog.messages if words in line)


def direct(slack: SlackSimulator) -> str:
    workspace = slack.workspace
    alice = workspace.names["alice"]
    return workspace.direct_with(alice.user_id, workspace.bot.user_id).channel_id


async def test_what_was_said_meanwhile_is_taken_once_and_nothing_else(
    slack: SlackSimulator, office: Office, speaker: SlackApp, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel, private = channel_of(slack), direct(slack)
    async with listening(slack, office):
        root = await slack.say("alice", channel, "@threadhand begin")
        await slack.say("alice", private, "are you there?")
        foreign = await slack.say("bob", channel, "lunch?")
        await eventually(lambda: len(office.taken) == 2)
        await office.marked(2)
    mention = await slack.say("bob", channel, "@threadhand while you slept")
    await slack.say("bob", channel, "nothing for anybody")
    await slack.say("alice", channel, "pizza", thread_id=foreign)
    await slack.say("alice", channel, "go on", thread_id=root)
    await slack.say("alice", private, "hello again")
    address = Address(
        platform="slack",
        workspace_id=slack.workspace.team_id,
        channel_id=channel,
        thread_key=root,
    )
    await speaker.surface.post(address, AnswerPart(markdown="mine"), delivery_id="d1")

    async with listening(slack, office):
        line = await told(caplog, "caught up in workspace")
        assert sorted(office.taken[2:]) == ["go on", "hello again", "while you slept"]
        assert line.endswith("6 messages, 3 for the agent")

        calls = office.calls
        _deliver_again(slack, channel, mention)
        await eventually(lambda: office.calls > calls)
        await slack.say("alice", channel, "live", thread_id=root)
        await eventually(lambda: office.taken[-1] == "live")
        assert len(office.taken) == 6

    caplog.clear()
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert len(office.taken) == 6


@pytest.mark.parametrize("failpoint", ["slack.catch_up.before", "slack.catch_up.after"])
async def test_what_was_cut_off_while_reading_is_read_at_the_next_start(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture, failpoint: str
):
    caplog.set_level("INFO")
    await _heard(slack, office)
    marks = await office.marks()
    await slack.say("alice", channel_of(slack), "@threadhand still wanted")
    failpoints.arm(f"{failpoint}:raise")
    try:
        async with listening(slack, office):
            await told(caplog, "catching up in workspace")
            await slack.say("alice", channel_of(slack), "@threadhand live")
            await eventually(lambda: office.taken[-1] == "live")
    finally:
        failpoints.arm("")
    assert await office.marks() == marks
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken == ["begin", "live", "still wanted"]


def _deliver_again(slack: SlackSimulator, channel_id: str, ts: str) -> None:
    channel = slack.workspace.channels[channel_id]
    event = posted_event(slack.workspace, channel, channel.messages[ts])
    slack.workspace.emit(subscription_of(channel), event)


def _calls(slack: SlackSimulator, method: str) -> int:
    return sum(call.method == method for call in slack.calls)


async def test_a_thread_is_read_from_where_the_agent_came_in(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel = channel_of(slack)
    async with listening(slack, office):
        foreign = await slack.say("bob", channel, "lunch?")
        await slack.say("alice", channel, "pizza", thread_id=foreign)
        await slack.say("alice", channel, "stop", thread_id=foreign)
        await slack.say("alice", channel, "@threadhand order", thread_id=foreign)
        await eventually(lambda: office.taken == ["order"])
        await office.marked()
    other = await slack.say("bob", channel, "dinner?")
    await slack.say("alice", channel, "soup", thread_id=other)
    await slack.say("alice", channel, "@threadhand cook", thread_id=other)
    await slack.say("alice", channel, "with salt", thread_id=other)

    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken == ["order", "cook", "with salt"]


async def test_a_stop_that_was_said_meanwhile_stops(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel = channel_of(slack)
    async with listening(slack, office):
        root = await slack.say("bob", channel, "@threadhand count")
        await eventually(lambda: office.taken)
        await office.marked()
    await slack.say("bob", channel, "stop", thread_id=root)
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken == ["count", "(stop)"]


async def test_all_pages_are_read(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await _heard(slack, office)
    await slack.say("alice", channel_of(slack), "@threadhand the oldest")
    for _ in range(PAGE + 1):
        await slack.say("bob", channel_of(slack), "chatter")
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken == ["begin", "the oldest"]
    assert "too much was missed" not in caplog.text


async def test_what_is_beyond_the_last_page_is_left_and_said_to_be(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await _heard(slack, office)
    channel = channel_of(slack)
    await slack.say("alice", channel, "@threadhand the oldest")
    for _ in range(PAGE * PAGES_MAX):
        await slack.say("bob", channel, "chatter")
    await slack.say("alice", channel, "@threadhand the newest")
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken == ["begin", "the newest"]
    assert await told(caplog, "too much was missed") == (
        f"slack: in 1 channels of workspace {FIRST} too much was missed: {channel}"
    )
    assert _calls(slack, "conversations.history") == PAGES_MAX


async def _heard(slack: SlackSimulator, office: Office) -> None:
    async with listening(slack, office):
        await slack.say("alice", channel_of(slack), "@threadhand begin")
        await eventually(lambda: office.taken)
        await office.marked()


def test_nothing_is_read_that_is_too_old_or_no_mark() -> None:
    now = 1_800_000_000.0
    fresh, old = f"{now - 60:.6f}", f"{now - AGE_SECONDS_MAX - 60:.6f}"
    marks = {"T1:C1": old, "T1:C2": fresh, "T2:C3": fresh, "T2:C4": "99", "C5": fresh}

    gaps = gaps_of(marks, now=now)

    assert {team_id: [gap.channel_id for gap in found] for team_id, found in gaps.items()} == {
        "T1": ["C2", "C1"],
        "T2": ["C3"],
    }
    newer, older = gaps["T1"]
    assert (float(newer.oldest), newer.is_cut) == (now - 60 - OVERLAP_SECONDS, False)
    assert (float(older.oldest), older.is_cut) == (now - AGE_SECONDS_MAX, True)


async def test_a_channel_that_refuses_keeps_no_other_from_being_read(
    slack: SlackSimulator, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    closed = slack.workspace.channel_names["other"]
    async with listening(slack, office):
        await slack.say("alice", channel_of(slack), "@threadhand begin")
        await slack.say("alice", closed.channel_id, "@threadhand here too")
        await eventually(lambda: len(office.taken) == 2)
        await office.marked(2)
    del closed.members[slack.workspace.bot.user_id]
    await slack.say("alice", closed.channel_id, "@threadhand unheard")
    await slack.say("alice", channel_of(slack), "@threadhand heard")
    async with listening(slack, office):
        await told(caplog, "caught up in workspace")
    assert office.taken[2:] == ["heard"]
    refused = await told(caplog, "not caught up")
    assert refused.endswith(f"(not_in_channel): {closed.channel_id}")


async def test_missing_rights_are_told_once(office: Office, caplog: pytest.LogCaptureFixture):
    settings = SlackSettings(scopes=("chat:write", "users:read"), channels=("general", "other"))
    async with SlackSimulator(settings=settings) as slack:
        for channel in slack.workspace.channel_names.values():
            mark = slack.workspace.new_ts()
            await office.inbox.forward("slack", f"{FIRST}:{channel.channel_id}", mark)
        async with listening(slack, office):
            await told(caplog, "not caught up")
    assert caplog.text.count("missing_scope") == 1
    assert "2 channels" in caplog.text


@pytest.mark.parametrize("lost", ["", SECOND])
async def test_each_workspace_is_read_with_its_own_token(
    slack: SlackSimulator,
    desk: Desk,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    lost: str,
):
    caplog.set_level("INFO")
    second = slack.add_workspace("second", bot_token="xoxb-second", people=("carol",))
    async with opened(slack, desk, tmp_path, allowed=(FIRST, SECOND)) as shop:
        await shop.install(FIRST)
        await shop.install(SECOND)
        await shop.said(slack, "alice", "one")
        await shop.said(second, "carol", "two")
        office = Office(SqlInbox(shop.database))
        await office.marked(2)
    await _mention(slack, "alice", "three")
    await _mention(second, "carol", "four")
    for token in [key for key, owner in slack.tokens.items() if owner.team_id == lost]:
        del slack.tokens[token]
    async with opened(slack, desk, tmp_path, allowed=(FIRST, SECOND)):
        await told(caplog, f"caught up in workspace {FIRST}")
        await told(
            caplog, f"1 channels of workspace {SECOND}" if lost else f"up in workspace {SECOND}"
        )
    heard = [
        (one.address.workspace_id, one.text)
        for one in desk.taken
        if isinstance(one, IncomingMessage)
    ]
    missed = [(FIRST, "three")] if lost else [(FIRST, "three"), (SECOND, "four")]
    assert sorted(heard[2:]) == missed


async def _mention(people: BusyPeople, person: str, words: str) -> None:
    channel = people.workspace.channel_names["general"]
    await people.say(person, channel.channel_id, f"@threadhand {words}")


@asynccontextmanager
async def unplugged(
    slack: SlackSimulator, office: Office, *, away_seconds: float
) -> AsyncGenerator[tuple[CatchUp, Doorway], None]:
    """The parts without a socket: what is heard is what the test hands over."""
    marks = Marks(office.inbox)
    teams = Teams(
        tokens=None,
        new_client=lambda token: SlackClient(bot_token=token, api_url=slack.api_url),
        new_doorway=lambda client: Doorway(client, office.receive, marks=marks),
    )
    client = SlackClient(bot_token=slack.settings.bot_token, api_url=slack.api_url)
    identity = await client.open()
    team = teams.team_with(client)
    teams.add(identity.team_id, team)
    assert team.doorway is not None
    catch_up = CatchUp(office.inbox, marks, teams, away_seconds=away_seconds)
    try:
        yield catch_up, team.doorway
    finally:
        await catch_up.close()
        await teams.close()


async def test_an_absence_is_made_good(slack: SlackSimulator, office: Office):
    async with unplugged(slack, office, away_seconds=0.0) as (catch_up, doorway):
        await _hand_over(slack, doorway, "@threadhand begin")
        before = await office.marks()
        catch_up.seen(is_connected=True)
        catch_up.seen(is_connected=False)
        await slack.say("alice", channel_of(slack), "@threadhand anybody?")
        await _hand_over(slack, doorway, "@threadhand first again")
        assert await office.marks() == before
        catch_up.seen(is_connected=True)
        await eventually(lambda: "anybody?" in office.taken)
        while await office.marks() == before:
            await asyncio.sleep(0.01)
    assert office.taken == ["begin", "first again", "anybody?"]


async def test_a_short_absence_is_left_to_slack(slack: SlackSimulator, office: Office):
    async with unplugged(slack, office, away_seconds=60.0) as (catch_up, doorway):
        catch_up.seen(is_connected=True)
        catch_up.seen(is_connected=False)
        catch_up.seen(is_connected=True)
        await _hand_over(slack, doorway, "@threadhand begin")
        assert list(await office.marks()) == [f"{FIRST}:{channel_of(slack)}"]
    assert _calls(slack, "conversations.history") == 0


async def _hand_over(slack: SlackSimulator, doorway: Doorway, words: str) -> None:
    channel = slack.workspace.channels[channel_of(slack)]
    ts = await slack.say("alice", channel.channel_id, words)
    await doorway.on_event(posted_event(slack.workspace, channel, channel.messages[ts]))


async def test_marks_stay_before_a_gap_until_it_is_filled(office: Office):
    marks = Marks(office.inbox)
    first, second, third = (f"{int(time.time())}.00000{n}" for n in (1, 2, 3))
    hear = partial(marks.heard, "T1", "C1")
    await hear(first)
    marks.hold()
    marks.open(["T1:C1"])
    await hear(third)
    assert await office.marks() == {"T1:C1": first}
    await marks.fill("T1:C1", second)
    assert await office.marks() == {"T1:C1": third}
    await hear("not a time")
    await marks.heard("T1", "", third)
    assert await office.marks() == {"T1:C1": third}
