"""Messages of one thread are stored in the order in which they came, however long it takes to look their authors up."""

from dataclasses import replace

import pytest

from bots.delivery.content import AskPrompt
from bots.inbound.actions import NOT_STORED
from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited
from core.domain.threads import Address, Ask
from simulator.slack import SlackSettings, SlackSimulator
from simulator.view import Button
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, general, running
from tests.integration.bots.slack.storing_app import UNHEARD, StoringReceiver, listening, told
from tests.support.waiting import until


async def test_changes_do_not_overtake_a_message_whose_names_are_looked_up_slowly(
    slack: SlackSimulator, receiver: RecordingReceiver
) -> None:
    async with running(slack, receiver):
        channel = channel_of(slack)
        root = await slack.say("alice", channel, "@threadhand hello")
        await until(lambda: receiver.taken)
        slack.misbehave("slow", method="users.info", times=2, seconds=1.5)
        asked = await slack.say("alice", channel, "Pay @bob 1000 EUR.", thread_id=root)
        await slack.edit("alice", channel, asked, "Pay @bob 10 EUR.")
        await slack.say("alice", channel, "No, wait.", thread_id=root)
        await slack.delete("alice", channel, asked)
        await until(lambda: len(receiver.taken) == 5)
        order = [type(one) for one in receiver.taken[1:]]
        assert order == [IncomingMessage, MessageEdited, IncomingMessage, MessageDeleted]


@pytest.mark.parametrize("mentions_first", [True, False])
async def test_a_reply_that_comes_before_its_root_is_not_lost(
    storing_receiver: StoringReceiver, *, mentions_first: bool
) -> None:
    settings = SlackSettings(mentions_first=mentions_first)
    async with SlackSimulator(settings=settings) as slack, listening(slack, storing_receiver):
        channel = channel_of(slack)
        slack.misbehave("delay", method="message.channels", seconds=1.2)
        slack.misbehave("delay", method="app_mention", seconds=1.2)
        root = await slack.say("alice", channel, "@threadhand count the rows")
        await slack.say("alice", channel, "and the columns", thread_id=root)
        await until(lambda: len(storing_receiver.taken) == 2)
        assert storing_receiver.taken == ["count the rows", "and the columns"]


IMPATIENT = replace(UNHEARD, retry_seconds=())
"""Slack delivers nothing again."""


async def test_what_was_refused_is_taken_when_the_database_is_back(
    storing_receiver: StoringReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with SlackSimulator(settings=IMPATIENT) as slack, listening(slack, storing_receiver):
        storing_receiver.is_away = True
        root = await slack.say("alice", channel_of(slack), "@threadhand begin")
        await until(lambda: "never took" in caplog.text)
        calls = storing_receiver.calls
        await until(lambda: storing_receiver.calls > calls)
        await slack.say("alice", channel_of(slack), "go on", thread_id=root)
        await slack.say("alice", channel_of(slack), "stop", thread_id=root)
        await until(lambda: caplog.text.count("never took") >= 3)
        assert storing_receiver.taken == []

        storing_receiver.is_away = False
        await told(caplog, "events that had to wait were handled")
        assert storing_receiver.taken == ["begin", "go on", "(stop)"]
        assert "dropped" not in caplog.text


async def test_a_click_that_cannot_be_stored_is_told_to_be_tried_again(storing_receiver: StoringReceiver) -> None:
    async with SlackSimulator(settings=IMPATIENT) as slack, listening(slack, storing_receiver) as app:
        root = await slack.say("alice", channel_of(slack), "@threadhand begin")
        await until(lambda: storing_receiver.taken)
        address = Address(
            platform="slack", workspace_id=slack.workspace.team_id, channel_id=channel_of(slack), thread_key=root
        )
        ask = Ask(ask_id="a-1", run_id="r-1", text="Which?", options=("Red", "Blue"))
        ref = await app.surface.post(address, AskPrompt(ask=ask), delivery_id="d1")
        (thread,) = general(slack).threads
        button = next(one for one in thread.messages[1].elements if isinstance(one, Button))
        storing_receiver.is_away = True
        await slack.press("alice", channel_of(slack), ref, button.control_id)
        await until(lambda: NOT_STORED in str(slack.view()))


async def test_a_slack_that_answers_no_look_up_delays_no_message(receiver: RecordingReceiver) -> None:
    async with SlackSimulator(settings=SlackSettings(mentions_first=True)) as slack, running(slack, receiver):
        slack.misbehave("delay", method="message.channels", seconds=60)
        for method in ("users.info", "conversations.replies", "files.info"):
            slack.misbehave("slow", method=method, times=9, seconds=60)
        await slack.say("alice", channel_of(slack), "@threadhand hello @bob")
        await until(lambda: receiver.taken)


async def test_the_time_zone_of_an_author_is_looked_up(slack: SlackSimulator, receiver: RecordingReceiver) -> None:
    slack.member("alice").time_zone = "Europe/Helsinki"
    async with running(slack, receiver):
        await slack.say("alice", channel_of(slack), "@threadhand hello")
        await until(lambda: receiver.taken)
    (said,) = receiver.taken
    assert isinstance(said, IncomingMessage)
    assert said.person.time_zone == "Europe/Helsinki"
