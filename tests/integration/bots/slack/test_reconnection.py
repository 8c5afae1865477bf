"""What is missed while the socket is away, and how far a channel counts as heard."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from bots.inbound.actions import MISSED_SECONDS_MAX
from bots.slack.events.backfill import OVERLAP_SECONDS, Backfill, find_gaps
from bots.slack.events.cursors import ChannelCursors
from bots.slack.events.handler import EventHandler
from bots.slack.web_api.client import SlackClient
from bots.slack.workspaces import Workspaces
from core import failpoints
from core.domain.threads import Ignore
from simulator.slack import SlackSimulator
from simulator.slack.events.message_events import posted_event
from tests.integration.bots.slack.socket_mode_app import channel_of
from tests.integration.bots.slack.storing_app import UNHEARD, StoringReceiver, calls_of, heard_once, listening, told
from tests.support.waiting import until

FIRST = "T0SIM0001"


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(settings=UNHEARD) as simulator:
        yield simulator


def test_nothing_is_read_that_is_too_old_or_no_mark() -> None:
    now = 1_800_000_000.0
    fresh, old = f"{now - 60:.6f}", f"{now - MISSED_SECONDS_MAX - 60:.6f}"
    marks = {"T1:C1": old, "T1:C2": fresh, "T2:C3": fresh, "T2:C4": "99", "C5": fresh}

    gaps = find_gaps(marks, now=now)

    assert {team_id: [gap.channel_id for gap in found] for team_id, found in gaps.items()} == {
        "T1": ["C2", "C1"],
        "T2": ["C3"],
    }
    newer, older = gaps["T1"]
    assert (float(newer.oldest), newer.is_cut) == (now - 60 - OVERLAP_SECONDS, False)
    assert (float(older.oldest), older.is_cut) == (now - MISSED_SECONDS_MAX, True)


@pytest.mark.parametrize("failpoint", ["slack.catch_up.before", "slack.catch_up.after"])
async def test_what_was_cut_off_while_reading_is_read_at_the_next_start(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture, failpoint: str
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    marks = await storing_receiver.marks()
    await slack.say("alice", channel_of(slack), "@threadhand still wanted")
    failpoints.arm(f"{failpoint}:raise")
    try:
        async with listening(slack, storing_receiver):
            await told(caplog, "catching up in workspace")
            await slack.say("alice", channel_of(slack), "@threadhand live")
            await until(lambda: storing_receiver.taken[-1] == "live")
    finally:
        failpoints.arm("")
    assert marks.items() <= (await storing_receiver.marks()).items()
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["begin", "live", "still wanted"]


async def test_what_was_left_alone_is_not_decided_again(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel = channel_of(slack)
    async with listening(slack, storing_receiver):
        storing_receiver.decision = Ignore(reason="another agent is at work")
        root = await slack.say("alice", channel, "@threadhand not now")
        await storing_receiver.marked()
        await storing_receiver.marked_ignored()
        storing_receiver.decision = None
    await slack.say("alice", channel, "@threadhand but now", thread_id=root)
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["but now"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    client: SlackClient
    teams: Workspaces
    catch_up: Backfill
    event_handler: EventHandler


@asynccontextmanager
async def unplugged(
    slack: SlackSimulator, storing_receiver: StoringReceiver, *, outage_seconds: float
) -> AsyncGenerator[Parts, None]:
    """The parts without a socket: what is heard is what the test hands over."""
    marks = ChannelCursors(storing_receiver.inbox)
    teams = Workspaces(
        tokens=None,
        new_client=lambda token: SlackClient(bot_token=token, api_url=slack.api_url),
        new_event_handler=lambda client, people: EventHandler(client, people, storing_receiver.receive, cursors=marks),
    )
    client = SlackClient(bot_token=slack.settings.bot_token, api_url=slack.api_url)
    identity = await client.sign_in()
    team = teams.build_workspace(client)
    teams.add(identity.team_id, team)
    assert team.event_handler is not None
    catch_up = Backfill(storing_receiver.inbox, marks, teams, outage_seconds=outage_seconds)
    try:
        yield Parts(client=client, teams=teams, catch_up=catch_up, event_handler=team.event_handler)
    finally:
        await catch_up.close()
        await teams.close()


async def test_an_absence_is_made_good(slack: SlackSimulator, storing_receiver: StoringReceiver):
    async with unplugged(slack, storing_receiver, outage_seconds=0.0) as parts:
        catch_up, event_handler = parts.catch_up, parts.event_handler
        await _hand_over(slack, event_handler, "@threadhand begin")
        before = await storing_receiver.marks()
        catch_up.on_connection_state(is_connected=True)
        catch_up.on_connection_state(is_connected=False)
        await slack.say("alice", channel_of(slack), "@threadhand anybody?")
        await _hand_over(slack, event_handler, "@threadhand first again")
        assert await storing_receiver.marks() == before
        catch_up.on_connection_state(is_connected=True)
        await until(lambda: "anybody?" in storing_receiver.taken)
        while await storing_receiver.marks() == before:
            await asyncio.sleep(0.01)
    assert storing_receiver.taken == ["begin", "first again", "anybody?"]


async def test_a_short_absence_is_left_to_slack(slack: SlackSimulator, storing_receiver: StoringReceiver):
    async with unplugged(slack, storing_receiver, outage_seconds=60.0) as parts:
        catch_up, event_handler = parts.catch_up, parts.event_handler
        catch_up.on_connection_state(is_connected=True)
        catch_up.on_connection_state(is_connected=False)
        catch_up.on_connection_state(is_connected=True)
        await _hand_over(slack, event_handler, "@threadhand begin")
        assert list(await storing_receiver.marks()) == [f"{FIRST}:{channel_of(slack)}"]
    assert calls_of(slack, "conversations.history") == 0


async def _hand_over(slack: SlackSimulator, event_handler: EventHandler, words: str) -> None:
    channel = slack.workspace.channels[channel_of(slack)]
    ts = await slack.say("alice", channel.channel_id, words)
    await event_handler.on_event(posted_event(slack.workspace, channel, channel.messages[ts]))


async def test_marks_stay_before_a_gap_until_it_is_filled(storing_receiver: StoringReceiver):
    marks = ChannelCursors(storing_receiver.inbox)
    first, second, third = (f"{int(time.time())}.00000{n}" for n in (1, 2, 3))
    hear = partial(marks.record_message, "T1", "C1")

    async def stored() -> dict[str, str]:
        await marks.flush()
        return await storing_receiver.marks()

    hear(first)
    marks.pause()
    marks.record_message("T1", "C2", first)
    assert await stored() == {"T1:C1": first}
    marks.resume(["T1:C1"])
    assert (await stored()).pop("T1:C2") == first
    hear(third)
    assert await stored() == {"T1:C1": first, "T1:C2": first}
    marks.close_gap("T1:C1", second)
    assert await stored() == {"T1:C1": third, "T1:C2": first}
    hear("not a time")
    marks.record_message("T1", "", third)
    assert await stored() == {"T1:C1": third, "T1:C2": first}
