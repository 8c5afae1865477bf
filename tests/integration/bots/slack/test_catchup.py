"""What is said while nobody listens is read at the next start, and taken once."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from bots.delivery.content import AnswerPart
from bots.slack.app import SlackApp
from bots.slack.events import backfill
from bots.slack.web_api.history import CHANNEL_PAGES_MAX, PAGE_SIZE
from core.domain.actions import IncomingMessage
from core.domain.threads import Address
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.people.interactions import BusyPeople
from storage.sql.stores.inbox import SqlInbox
from tests.integration.bots.slack.installable_app import opened
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of
from tests.integration.bots.slack.storing_app import (
    UNHEARD,
    StoringReceiver,
    calls_of,
    deliver_again,
    heard_once,
    listening,
    told,
)
from tests.integration.bots.slack.test_http import SECRET, send, signed
from tests.support.closing import close_after
from tests.support.waiting import until
from tests.support.web import serve_http

FIRST, SECOND = "T0SIM0001", "T0SIM0002"


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(settings=UNHEARD) as simulator:
        yield simulator


def direct(slack: SlackSimulator) -> str:
    workspace = slack.workspace
    alice = workspace.names["alice"]
    return workspace.direct_with(alice.user_id, workspace.bot.user_id).channel_id


async def test_what_was_said_meanwhile_is_taken_once_and_nothing_else(
    slack: SlackSimulator, storing_receiver: StoringReceiver, speaker: SlackApp, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel, private = channel_of(slack), direct(slack)
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
    address = Address(platform="slack", workspace_id=slack.workspace.team_id, channel_id=channel, thread_key=root)
    await speaker.surface.post(address, AnswerPart(markdown="mine"), delivery_id="d1")

    async with listening(slack, storing_receiver):
        line = await told(caplog, "caught up in workspace")
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
        line = await told(caplog, "caught up in workspace")
    assert line.endswith("1 messages, 0 for the agent")
    assert len(storing_receiver.taken) == 6


async def test_a_thread_is_read_from_where_the_agent_came_in(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
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

    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["order", "cook", "with salt"]


async def test_a_stop_that_was_said_meanwhile_stops(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel = channel_of(slack)
    root = await heard_once(slack, storing_receiver, "@threadhand count", by="bob")
    await slack.say("bob", channel, "stop", thread_id=root)
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["count", "(stop)"]


async def test_a_thread_that_was_deleted_keeps_nothing_else_from_being_read(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    channel = channel_of(slack)
    root = await heard_once(slack, storing_receiver)
    await slack.delete("alice", channel, root)
    await slack.say("alice", channel, "@threadhand anew")
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["begin", "anew"]
    assert calls_of(slack, "conversations.replies") == 1
    assert "not caught up" not in caplog.text


async def test_all_pages_are_read(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    await slack.say("alice", channel_of(slack), "@threadhand the oldest")
    for _ in range(PAGE_SIZE + 1):
        await slack.say("bob", channel_of(slack), "chatter")
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["begin", "the oldest"]
    assert "too much was missed" not in caplog.text


async def test_what_is_beyond_the_last_page_is_left_and_said_to_be(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    await heard_once(slack, storing_receiver)
    channel = channel_of(slack)
    await slack.say("alice", channel, "@threadhand the oldest")
    for _ in range(PAGE_SIZE * CHANNEL_PAGES_MAX):
        await slack.say("bob", channel, "chatter")
    await slack.say("alice", channel, "@threadhand the newest")
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken == ["begin", "the newest"]
    assert await told(caplog, "too much was missed") == (
        f"slack: in 1 channels of workspace {FIRST} too much was missed: {channel}"
    )
    pages = [call for call in slack.calls if call.method == "conversations.history"]
    assert sum(call.arguments["channel"] == channel for call in pages) == CHANNEL_PAGES_MAX


async def test_a_channel_that_refuses_keeps_no_other_from_being_read(
    slack: SlackSimulator, storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    closed = slack.workspace.channel_names["other"]
    async with listening(slack, storing_receiver):
        await slack.say("alice", channel_of(slack), "@threadhand begin")
        await slack.say("alice", closed.channel_id, "@threadhand here too")
        await until(lambda: len(storing_receiver.taken) == 2)
        await storing_receiver.marked(2)
    del closed.members[slack.workspace.bot.user_id]
    await slack.say("alice", closed.channel_id, "@threadhand unheard")
    await slack.say("alice", channel_of(slack), "@threadhand heard")
    async with listening(slack, storing_receiver):
        await told(caplog, "caught up in workspace")
    assert storing_receiver.taken[2:] == ["heard"]
    refused = await told(caplog, "not caught up")
    assert refused.endswith(f"(not_in_channel): {closed.channel_id}")


async def test_a_channel_that_could_not_be_read_is_tried_again(
    slack: SlackSimulator, storing_receiver: StoringReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backfill, "RETRY_SECONDS", 0.1)
    async with listening(slack, storing_receiver):
        await slack.say("alice", channel_of(slack), "@threadhand begin")
        await until(lambda: len(storing_receiver.taken) == 1)
        await storing_receiver.marked(1)
    await slack.say("alice", channel_of(slack), "@threadhand heard")
    slack.misbehave("server_error", method="conversations.history", times=4)
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
    caplog.set_level("INFO")
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
    async with close_after(
        SlackApp(
            bot_token=slack.settings.bot_token,
            signing_secret=SECRET,
            api_url=slack.api_url,
            receive=storing_receiver.receive,
            inbox=storing_receiver.inbox,
        )
    ) as app:
        await app.start()
        application = web.Application()
        application.add_routes(app.http_routes())
        async with serve_http(application) as origin:
            url = URL(f"{origin}/slack/events")
            await slack.say("bob", channel_of(slack), "@threadhand while Slack said nothing")
            limited = {"type": "app_rate_limited", "team_id": FIRST, "api_app_id": "A1"}
            body = json.dumps(limited | {"minute_rate_limited": int(time.time())}).encode()
            assert await send(url, body, signed(body)) == (200, "")
            await until(lambda: "while Slack said nothing" in storing_receiver.taken)
    assert "more events than Slack delivers" in caplog.text
