"""The first word ever said in a channel, while nobody listened, is read at the next start, and taken once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bots.slack.events import backfill
from bots.slack.events.backfill import last_listed_ts, newest_cursor_by_workspace
from bots.slack.install.manifest import BOT_SCOPES
from bots.slack.web_api.history import PAGE_SIZE
from core import failpoints
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.settings import SCOPES
from tests.integration.bots.slack.socket_mode_app import WAIT_SECONDS, channel_of
from tests.integration.bots.slack.storing_app import UNHEARD, StoringReceiver, calls_of, heard_once, listening, told
from tests.support.waiting import until

FIRST = "T0SIM0001"
THROUGH = "caught up in workspace"


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(settings=UNHEARD) as simulator:
        yield simulator


def direct(slack: SlackSimulator, name: str = "bob") -> str:
    workspace = slack.workspace
    return workspace.direct_with(workspace.names[name].user_id, workspace.bot.user_id).channel_id


def other(slack: SlackSimulator) -> str:
    return slack.workspace.channel_names["other"].channel_id


async def test_a_first_mention_and_a_first_direct_message_are_taken_once(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    await slack.say("bob", other(slack), "nothing for anybody")
    await slack.say("bob", other(slack), "@threadhand over here")
    await slack.say("bob", direct(slack), "and here")
    for _ in range(2):
        async with listening(slack, storing_receiver):
            await told(caplog, THROUGH)
        caplog.clear()
        await slack.say("alice", channel_of(slack), "chatter")
    assert storing_receiver.taken[0] == "begin"
    assert sorted(storing_receiver.taken[1:]) == ["and here", "over here"]


async def test_a_first_word_is_found_where_nothing_was_ever_heard(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with listening(slack, storing_receiver):
        await until_known(storing_receiver)
    await slack.say("bob", direct(slack), "the first word")
    async with listening(slack, storing_receiver):
        await told(caplog, THROUGH)
    assert storing_receiver.taken == ["the first word"]


async def until_known(storing_receiver: StoringReceiver) -> None:
    """Waits until it is stored since when the bot listens."""
    async with asyncio.timeout(WAIT_SECONDS):
        while f"{FIRST}:" not in await storing_receiver.inbox.cursors("slack"):
            await asyncio.sleep(0.01)


async def test_without_the_scopes_all_else_is_read(storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    scopes = tuple(one for one in SCOPES if one not in ("channels:read", "im:read"))
    async with SlackSimulator(settings=replace(UNHEARD, scopes=scopes)) as slack:
        await heard_once(slack, storing_receiver)
        await slack.say("alice", channel_of(slack), "@threadhand known")
        await slack.say("bob", other(slack), "@threadhand unknown")
        async with listening(slack, storing_receiver):
            await told(caplog, THROUGH)
    assert storing_receiver.taken == ["begin", "known"]
    assert "missing_scope for the kind im" in caplog.text
    assert "missing_scope for the kind public_channel" in caplog.text
    assert "for the kind mpim" not in caplog.text


def test_the_manifest_asks_for_the_scopes() -> None:
    assert {"channels:read", "groups:read", "im:read", "mpim:read"} <= set(BOT_SCOPES)


async def test_all_pages_are_listed_and_no_more_than_so_many_channels_at_a_start(
    storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("INFO")
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


async def settled(storing_receiver: StoringReceiver, channels: int) -> None:
    await storing_receiver.marked(channels)
    assert len(await storing_receiver.marks()) == channels


@pytest.mark.parametrize("failpoint", ["slack.list_channels.before", "slack.list_channels.after"])
async def test_a_listing_that_fails_keeps_nothing_else_from_being_read_and_is_done_again(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture, failpoint: str
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    await slack.say("bob", other(slack), "@threadhand not yet")
    await slack.say("alice", channel_of(slack), "@threadhand known")
    failpoints.arm(f"{failpoint}:raise")
    try:
        async with listening(slack, storing_receiver):
            await told(caplog, THROUGH)
    finally:
        failpoints.arm("")
    assert storing_receiver.taken == ["begin", "known"]
    caplog.clear()
    async with listening(slack, storing_receiver):
        await told(caplog, THROUGH)
    assert storing_receiver.taken == ["begin", "known", "not yet"]


async def test_what_was_found_is_read_at_a_later_start_where_this_one_is_cut_off(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    await slack.say("bob", other(slack), "@threadhand still wanted")
    failpoints.arm("slack.catch_up.before:raise")
    try:
        async with listening(slack, storing_receiver):
            await told(caplog, "catching up in workspace")
            await slack.say("alice", channel_of(slack), "@threadhand live")
            await until(lambda: storing_receiver.taken[-1] == "live")
            await slack.say("bob", other(slack), "@threadhand live, too")
            await until(lambda: storing_receiver.taken[-1] == "live, too")
    finally:
        failpoints.arm("")
    async with listening(slack, storing_receiver):
        await told(caplog, THROUGH)
    assert storing_receiver.taken == ["begin", "live", "live, too", "still wanted"]


def test_what_was_looked_for_last_counts_and_no_clock_that_was_ahead() -> None:
    early, late = "1800000000.000000", "1800000009.000000"
    cursors = {"T1:C1": early, "T1:C2": "0", "T1:": late, "T2:": late, "T3:C1": late, "T3:": early}
    assert [last_listed_ts(one, cursors) for one in ("T1", "T2", "T3", "T4")] == [early, late, early, ""]
    assert newest_cursor_by_workspace({**cursors, ":C": late}) == {"T1": early, "T3": late}
