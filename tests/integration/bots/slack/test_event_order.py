"""Messages of one thread are stored in the order in which they came, however long it takes to look their authors up."""

import pytest

from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited
from simulator.slack import SlackSettings, SlackSimulator
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, running
from tests.integration.bots.slack.storing_app import StoringReceiver, listening
from tests.support.waiting import until


async def test_the_time_zone_of_an_author_is_looked_up(slack: SlackSimulator, receiver: RecordingReceiver) -> None:
    slack.member("alice").time_zone = "Europe/Helsinki"
    async with running(slack, receiver):
        await slack.say("alice", channel_of(slack), "@threadhand hello")
        await until(lambda: receiver.taken)
    (said,) = receiver.taken
    assert isinstance(said, IncomingMessage)
    assert said.person.time_zone == "Europe/Helsinki"


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


async def test_a_slack_that_answers_no_look_up_delays_no_message(receiver: RecordingReceiver) -> None:
    async with SlackSimulator(settings=SlackSettings(mentions_first=True)) as slack, running(slack, receiver):
        slack.misbehave("delay", method="message.channels", seconds=60)
        for method in ("users.info", "conversations.replies", "files.info"):
            slack.misbehave("slow", method=method, times=9, seconds=60)
        await slack.say("alice", channel_of(slack), "@threadhand hello @bob")
        await until(lambda: receiver.taken)
