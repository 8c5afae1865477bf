"""What is said while nobody listens is read at the next start, and taken once."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bots.delivery.content import AnswerPart
from bots.inbound.actions import MISSED_SECONDS_MAX
from bots.slack.app import SlackApp
from bots.slack.events import backfill
from bots.slack.events.backfill import OVERLAP_SECONDS, Backfill, find_gaps, last_listed_ts, newest_cursor_by_workspace
from bots.slack.events.cursors import ChannelCursors
from bots.slack.events.handler import EventHandler
from bots.slack.web_api.channel_history import CHANNEL_PAGES_MAX, PAGE_SIZE
from bots.slack.web_api.client import SlackClient
from bots.slack.workspaces import Workspaces
from core.domain.actions import IncomingMessage
from core.domain.threads import Ignore
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.message_events import posted_event
from simulator.slack.people.interactions import BusyPeople
from storage.sql.stores.inbox import SqlInbox
from tests.integration.bots.slack.installable_app import opened
from tests.integration.bots.slack.socket_mode_app import WAIT_SECONDS, RecordingReceiver, channel_of, started, thread_in
from tests.integration.bots.slack.storing_app import (
    UNHEARD,
    StoringReceiver,
    calls_of,
    deliver_again,
    heard_once,
    listening,
    told,
)
from tests.integration.bots.slack.test_http import SECRET, send, served, signed
from tests.support.failpoints import armed
from tests.support.waiting import until


async def settled(storing_receiver: StoringReceiver, channels: int) -> None:
    await storing_receiver.marked(channels)
    assert len(await storing_receiver.marks()) == channels


FIRST, SECOND = "T0SIM0001", "T0SIM0002"
THROUGH = "caught up in workspace"


@pytest.fixture(autouse=True)
def full_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(settings=UNHEARD) as simulator:
        yield simulator


def direct(slack: SlackSimulator, name: str = "bob") -> str:
    workspace = slack.workspace
    return workspace.direct_with(workspace.names[name].user_id, workspace.bot.user_id).channel_id


async def catch_up(slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture) -> None:
    """Starts the app, which reads what it missed, and ends it again."""
    async with listening(slack, storing_receiver):
        await told(caplog, THROUGH)


async def test_what_was_said_meanwhile_is_taken_once_and_nothing_else(
    slack: SlackSimulator, storing_receiver: StoringReceiver, speaker: SlackApp, caplog: pytest.LogCaptureFixture
):
    channel, private = channel_of(slack), direct(slack, "alice")
    async with listening(slack, storing_receiver):
        root = await slack.say("alice", channel, "@threadhand begin")
        await slack.say("alice", private, "are you there?")
        foreign = await slack.say("bob", channel, "lunch?")
        await until(lambda: len(storing_receiver.taken) == 2)
        await storing_receiver.marked(2)
    mention = await slack.say("bob", channel, "@threadhand while you slept")
    await slack.say("bob", channel, "nothing for anybody")
    await slack.say("alice", channel, "pizza", thread_id=foreign)
    await slack.say("alice", channel, "go on", thread_id=root)
    await slack.say("alice", private, "hello again")
    await speaker.surface.post(thread_in(slack, root), AnswerPart(markdown="mine"), delivery_id="d1")

    async with listening(slack, storing_receiver):
        line = await told(caplog, THROUGH)
        assert sorted(storing_receiver.taken[2:]) == ["go on", "hello again", "while you slept"]
        assert line.endswith("6 messages, 3 for the agent")

        calls = storing_receiver.calls
        deliver_again(slack, channel, mention)
        await until(lambda: storing_receiver.calls > calls)
        await slack.say("alice", channel, "live", thread_id=root)
        await until(lambda: storing_receiver.taken[-1] == "live")
        assert len(storing_receiver.taken) == 6

    caplog.clear()
    await slack.say("bob", channel, "nothing for anybody, again")
    async with listening(slack, storing_receiver):
        line = await told(caplog, THROUGH)
    assert line.endswith("1 messages, 0 for the agent")
    assert len(storing_receiver.taken) == 6


async def test_a_thread_is_read_from_where_the_agent_came_in(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    channel = channel_of(slack)
    async with listening(slack, storing_receiver):
        foreign = await slack.say("bob", channel, "lunch?")
        await slack.say("alice", channel, "pizza", thread_id=foreign)
        await slack.say("alice", channel, "stop", thread_id=foreign)
        await slack.say("alice", channel, "@threadhand order", thread_id=foreign)
        await until(lambda: storing_receiver.taken == ["order"])
        await storing_receiver.marked()
        # what is not acknowledged would be delivered again
        await until(lambda: slack.outbox.is_quiet)
    other = await slack.say("bob", channel, "dinner?")
    await slack.say("alice", channel, "soup", thread_id=other)
    await slack.say("alice", channel, "@threadhand cook", thread_id=other)
    await slack.say("alice", channel, "with salt", thread_id=other)

    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["order", "cook", "with salt"]


async def test_what_is_beyond_the_last_page_is_left_and_said_to_be(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    await heard_once(slack, storing_receiver)
    channel = channel_of(slack)
    await slack.say("alice", channel, "@threadhand the oldest")
    for _ in range(PAGE_SIZE * CHANNEL_PAGES_MAX):
        await slack.say("bob", channel, "chatter")
    await slack.say("alice", channel, "@threadhand the newest")
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["begin", "the newest"]
    assert await told(caplog, "too much was missed") == (
        f"slack: in 1 channels of workspace {FIRST} too much was missed: {channel}"
    )
    pages = [call for call in slack.calls if call.method == "conversations.history"]
    assert sum(call.arguments["channel"] == channel for call in pages) == CHANNEL_PAGES_MAX


@pytest.mark.parametrize(
    ("fault", "times", "code"),
    [("server_error", 4, ""), ("refuse", 1, "team_added_to_org"), ("refuse", 1, "invalid_auth")],
)
async def test_a_channel_that_could_not_be_read_is_tried_again(
    slack: SlackSimulator,
    storing_receiver: StoringReceiver,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    times: int,
    code: str,
):
    monkeypatch.setattr(backfill, "RETRY_SECONDS", 0.1)
    await heard_once(slack, storing_receiver)
    await slack.say("alice", channel_of(slack), "@threadhand heard")
    slack.misbehave(fault, method="conversations.history", times=times, code=code)
    async with listening(slack, storing_receiver):
        await until(lambda: storing_receiver.taken[1:] == ["heard"])


async def test_missing_rights_are_told_once(storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture):
    caplog.set_level("WARNING")
    settings = SlackSettings(scopes=("chat:write", "users:read"), channels=("general", "other"))
    async with SlackSimulator(settings=settings) as slack:
        for channel in slack.workspace.channel_names.values():
            mark = slack.workspace.new_ts()
            await storing_receiver.inbox.advance_cursors("slack", {f"{FIRST}:{channel.channel_id}": mark})
        async with listening(slack, storing_receiver):
            await told(caplog, "not caught up")
    assert caplog.text.count("missing_scope") == 1
    assert "2 channels" in caplog.text


@pytest.mark.parametrize("lost", ["", SECOND])
async def test_each_workspace_is_read_with_its_own_token(
    slack: SlackSimulator, receiver: RecordingReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str
):
    second = slack.add_workspace("second", bot_token="xoxb-second", people=("carol",))
    async with opened(slack, receiver, tmp_path, allowed=(FIRST, SECOND)) as installable:
        await installable.install(FIRST)
        await installable.install(SECOND)
        await until(slack.socket_mode.is_connected)
        await installable.said(slack, "alice", "one")
        await installable.said(second, "carol", "two")
        storing_receiver = StoringReceiver(SqlInbox(installable.database))
        await storing_receiver.marked(2)
    await _mention(slack, "alice", "three")
    await _mention(second, "carol", "four")
    for token in [key for key, owner in slack.tokens.items() if owner.team_id == lost]:
        del slack.tokens[token]
    async with opened(slack, receiver, tmp_path, allowed=(FIRST, SECOND)):
        await told(caplog, f"caught up in workspace {FIRST}")
        await told(caplog, f"1 channels of workspace {SECOND}" if lost else f"up in workspace {SECOND}")
    heard = [(one.address.workspace_id, one.text) for one in receiver.taken if isinstance(one, IncomingMessage)]
    missed = [(FIRST, "three")] if lost else [(FIRST, "three"), (SECOND, "four")]
    assert sorted(heard[2:]) == missed


async def _mention(people: BusyPeople, person: str, words: str) -> None:
    channel = people.workspace.channel_names["general"]
    await people.say(person, channel.channel_id, f"@threadhand {words}")


async def test_what_slack_did_not_deliver_for_too_many_events_is_read(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    await heard_once(slack, storing_receiver)
    options = {"receive": storing_receiver.receive, "inbox": storing_receiver.inbox}
    async with started(slack, signing_secret=SECRET, **options) as app, served(app) as url:
        await slack.say("bob", channel_of(slack), "@threadhand while Slack said nothing")
        limited = {"type": "app_rate_limited", "team_id": FIRST, "api_app_id": "A1"}
        body = json.dumps(limited | {"minute_rate_limited": int(time.time())}).encode()
        assert await send(url, body, signed(body)) == (200, "")
        await until(lambda: "while Slack said nothing" in storing_receiver.taken)
    assert "more events than Slack delivers" in caplog.text


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
    await heard_once(slack, storing_receiver)
    marks = await storing_receiver.marks()
    await slack.say("alice", channel_of(slack), "@threadhand still wanted")
    with armed(f"{failpoint}:raise"):
        async with listening(slack, storing_receiver):
            await told(caplog, "catching up in workspace")
            await slack.say("alice", channel_of(slack), "@threadhand live")
            await until(lambda: storing_receiver.taken[-1] == "live")
    assert marks.items() <= (await storing_receiver.marks()).items()
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["begin", "live", "still wanted"]


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
        await storing_receiver.marked()
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
    marks.resume_with_gaps(["T1:C1"])
    assert (await stored()).pop("T1:C2") == first
    hear(third)
    assert await stored() == {"T1:C1": first, "T1:C2": first}
    marks.close_gap("T1:C1", second)
    assert await stored() == {"T1:C1": third, "T1:C2": first}
    hear("not a time")
    marks.record_message("T1", "", third)
    assert await stored() == {"T1:C1": third, "T1:C2": first}
    marks.pause()
    marks.record_message("T1", "C2", second)
    marks.resume_with_gaps()
    assert await stored() == {"T1:C1": third, "T1:C2": second}


def other(slack: SlackSimulator) -> str:
    return slack.workspace.channel_names["other"].channel_id


async def test_a_first_mention_and_a_first_direct_message_are_taken_once(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    await heard_once(slack, storing_receiver)
    await slack.say("bob", other(slack), "nothing for anybody")
    await slack.say("bob", other(slack), "@threadhand over here")
    await slack.say("bob", direct(slack), "and here")
    for _ in range(2):
        await catch_up(slack, storing_receiver, caplog)
        caplog.clear()
        await slack.say("alice", channel_of(slack), "chatter")
    assert storing_receiver.taken[0] == "begin"
    assert sorted(storing_receiver.taken[1:]) == ["and here", "over here"]


async def test_a_first_word_is_found_where_nothing_was_ever_heard(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    async with listening(slack, storing_receiver), asyncio.timeout(WAIT_SECONDS):
        while f"{FIRST}:" not in await storing_receiver.inbox.cursors("slack"):  # since when the bot listens
            await asyncio.sleep(0.01)
    await slack.say("bob", direct(slack), "the first word")
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["the first word"]


def test_what_was_looked_for_last_counts_and_no_clock_that_was_ahead() -> None:
    early, late = "1800000000.000000", "1800000009.000000"
    cursors = {"T1:C1": early, "T1:C2": "0", "T1:": late, "T2:": late, "T3:C1": late, "T3:": early}
    assert [last_listed_ts(one, cursors) for one in ("T1", "T2", "T3", "T4")] == [early, late, early, ""]
    assert newest_cursor_by_workspace({**cursors, ":C": late}) == {"T1": early, "T3": late}


@pytest.mark.parametrize("failpoint", ["slack.list_channels.before", "slack.list_channels.after"])
async def test_a_listing_that_fails_keeps_nothing_else_from_being_read_and_is_done_again(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture, failpoint: str
):
    await heard_once(slack, storing_receiver)
    await slack.say("bob", other(slack), "@threadhand not yet")
    await slack.say("alice", channel_of(slack), "@threadhand known")
    with armed(f"{failpoint}:raise"):
        await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["begin", "known"]
    caplog.clear()
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["begin", "known", "not yet"]


async def test_a_thread_that_was_deleted_keeps_nothing_else_from_being_read(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    channel = channel_of(slack)
    root = await heard_once(slack, storing_receiver)
    await slack.delete("alice", channel, root)
    await slack.say("alice", channel, "@threadhand anew")
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["begin", "anew"]
    assert calls_of(slack, "conversations.replies") == 1
    assert "not caught up" not in caplog.text


async def test_what_was_left_alone_is_not_decided_again(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    channel = channel_of(slack)
    async with listening(slack, storing_receiver):
        storing_receiver.decision = Ignore(reason="another agent is at work")
        root = await slack.say("alice", channel, "@threadhand not now")
        await storing_receiver.marked()
        await storing_receiver.marked_ignored()
        storing_receiver.decision = None
    await slack.say("alice", channel, "@threadhand but now", thread_id=root)
    await catch_up(slack, storing_receiver, caplog)
    assert storing_receiver.taken == ["but now"]


async def test_all_pages_are_listed_and_no_more_than_so_many_channels_at_a_start(
    storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backfill, "NEW_CHANNELS_MAX", PAGE_SIZE + 5)
    channels = ("general", "other", *(f"c{number}" for number in range(PAGE_SIZE + 10)))
    settings = SlackSettings(rate_scale=0, offline_seconds=0.0, channels=channels)
    async with SlackSimulator(settings=settings) as slack:
        await heard_once(slack, storing_receiver)
        async with listening(slack, storing_receiver):
            await until(lambda: calls_of(slack, "conversations.history") > 0)
            await settled(storing_receiver, 1 + PAGE_SIZE + 5)
        assert calls_of(slack, "users.conversations") == 3 + 2
        async with listening(slack, storing_receiver):
            await settled(storing_receiver, len(slack.workspace.channels))


async def test_a_short_absence_is_left_to_slack(slack: SlackSimulator, storing_receiver: StoringReceiver):
    async with unplugged(slack, storing_receiver, outage_seconds=60.0) as parts:
        catch_up, event_handler = parts.catch_up, parts.event_handler
        catch_up.on_connection_state(is_connected=True)
        catch_up.on_connection_state(is_connected=False)
        catch_up.on_connection_state(is_connected=True)
        await _hand_over(slack, event_handler, "@threadhand begin")
        await storing_receiver.marked()
    assert calls_of(slack, "conversations.history") == 0
