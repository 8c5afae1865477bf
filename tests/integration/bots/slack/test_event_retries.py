"""What the database refuses for longer than Slack tries is taken once it is back, in the order in which it was said."""

from dataclasses import replace

import pytest

from bots.delivery.content import AskPrompt
from bots.inbound.actions import NOT_STORED
from core.domain.threads import Address, Ask
from simulator.slack import SlackSimulator
from simulator.view import Button
from tests.integration.bots.slack.socket_mode_app import channel_of, general
from tests.integration.bots.slack.storing_app import UNHEARD, StoringReceiver, listening, told
from tests.support.waiting import until

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
