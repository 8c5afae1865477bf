"""Slack gets its acknowledgement within 3 s (docs.slack.dev/apis/events-api, Responding to events;
docs.slack.dev/interactivity/handling-user-interaction), however long its answers to our look-ups take.

In virtual time, so that no machine is too slow."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import pytest

from bots.inbound.actions import Outcome, UserAction
from bots.inbound.schedules import LocateTriggerEvent
from bots.slack.events.handler import EventHandler
from bots.slack.install.manifest import ASK_ANYWHERE, ASK_MESSAGE
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.users import UserLookup
from core.domain.errors import SurfaceError
from core.domain.json import JsonObject
from core.domain.schedules import TriggerEvent
from tests.histories.virtual_time import in_virtual_time
from tests.unit.bots.slack.events.test_parse import IDENTITY, REPLY, fixture, message, reaction

ACKNOWLEDGED_WITHIN_SECONDS = 3.0
GROUP = "S1"
NAMELESS_FILE: JsonObject = {"id": "F1", "file_access": "check_file_info"}
"""A file of a Slack Connect channel, whose name has to be looked up."""
MENTION = message("<@U0> ask <@U2> and <@U3>", type="app_mention", files=[NAMELESS_FILE])
MESSAGE = message("<@U0> ask <@U2> and <@U3>", files=[NAMELESS_FILE])
COMMAND: JsonObject = {"user_id": "U1", "channel_id": "C1", "text": "ask <@U2>"}
SHORTCUT: JsonObject = {"user": {"id": "U1"}, "callback_id": ASK_ANYWHERE, "trigger_id": "1.2"}
BAD_ANSWER: JsonObject = {
    **fixture("button_pressed"),
    "actions": [{"action_id": "feedback", "value": "r1:bad", "action_ts": "3.0"}],
}
FORM: JsonObject = {
    "type": "view_submission",
    "user": {"id": "U1"},
    "view": {"id": "V1", "callback_id": ASK_MESSAGE, "private_metadata": f'{{"channel": "C1", "ts": "{REPLY}"}}'},
}


class SilentSlack(SlackClient):
    """A Slack that answers nothing."""

    def __init__(self) -> None:
        super().__init__(bot_token="xoxb-1", api_url="http://127.0.0.1:9/api/")
        self._identity = IDENTITY

    async def read(self, *arguments: object, **more: object) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("this event is never set")

    write = write_form = read


class RecordingSlack(SilentSlack):
    """A Slack that answers each call, and records the posted texts."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[str] = []

    async def read(self, *arguments: object, **more: object) -> JsonObject:
        return {}

    async def write(self, method: str, body: JsonObject, **more: object) -> JsonObject:
        if method == "chat.postMessage":
            self.posted.append(str(body["text"]))
        return {"ts": "1.1", "channel": {"id": "D1"}}


def handler(taken: list[UserAction]) -> EventHandler:
    async def receive(inbound: UserAction) -> Outcome:
        taken.append(inbound)
        return Outcome(run_id="r1")  # the handler then looks for early replies, because the message is old

    async def admits(_inbound: UserAction) -> bool:
        return True

    async def hear(event: TriggerEvent, locate: LocateTriggerEvent | None = None) -> None:
        if locate is not None:
            await locate()

    client = SilentSlack()
    return EventHandler(client, UserLookup(client), receive, [GROUP], hear=hear, admits=admits)


async def send_twice_in_a_thread(slack: EventHandler) -> None:
    """The second message waits for the first, which came a moment earlier."""
    reply = message("and <@U4>?", ts=REPLY, thread_ts=MESSAGE["ts"])
    await asyncio.gather(slack.on_event(MESSAGE), slack.on_event(reply))


@pytest.mark.parametrize(
    ("send", "takes"),
    [
        (lambda slack: slack.on_event(MESSAGE), 1),
        (lambda slack: slack.on_event(MENTION), 1),
        (send_twice_in_a_thread, 2),
        (lambda slack: slack.on_event(fixture("message_edited")), 1),
        (lambda slack: slack.on_event(reaction("octagonal_sign")), 1),
        (lambda slack: slack.on_click(fixture("button_pressed")), 1),
        (lambda slack: slack.on_click(BAD_ANSWER), 1),
        (lambda slack: slack.on_command(COMMAND), 0),
        (lambda slack: slack.on_shortcut(SHORTCUT), 0),
        (lambda slack: slack.on_form(FORM), 0),
    ],
    ids=[*("message", "mention", "two", "edit", "reaction"), *("click", "bad answer", "command", "shortcut", "form")],
)
@in_virtual_time
async def test_a_slack_that_answers_nothing_gets_its_acknowledgement_in_time(
    send: Callable[[EventHandler], Awaitable[object]], takes: int
) -> None:
    taken: list[UserAction] = []
    began = time.monotonic()
    with suppress(SurfaceError):  # Slack sends such an event again
        await send(handler(taken))
    assert time.monotonic() - began < ACKNOWLEDGED_WITHIN_SECONDS
    assert len(taken) == takes


@pytest.mark.parametrize(
    "send",
    [
        lambda slack: slack.on_command({"user_id": "U1", "channel_id": "D1", "text": "forget yes"}),
        lambda slack: slack.on_command({"user_id": "U1", "channel_id": "C1", "text": "draw a cat and a dog"}),
        lambda slack: slack.on_form({**FORM, "view": {"id": "V1", "callback_id": ASK_ANYWHERE}}),
    ],
    ids=["command", "request", "form"],
)
@in_virtual_time
async def test_what_takes_longer_than_the_acknowledgement_is_done_all_the_same_and_its_outcome_is_sent(
    send: Callable[[EventHandler], Awaitable[object]],
) -> None:
    client, done = RecordingSlack(), asyncio.Event()

    async def receive(_inbound: UserAction) -> Outcome:
        await asyncio.sleep(ACKNOWLEDGED_WITHIN_SECONDS)
        done.set()
        return Outcome(notice="That is done.")

    slack = EventHandler(client, UserLookup(client), receive)
    began = time.monotonic()
    assert await send(slack) == {}
    assert time.monotonic() - began < ACKNOWLEDGED_WITHIN_SECONDS
    await slack.close()
    assert done.is_set()
    assert client.posted[-1] == "That is done."


@in_virtual_time
async def test_a_reaction_waits_for_none_in_another_channel() -> None:
    client, is_second_done = RecordingSlack(), asyncio.Event()

    async def receive(inbound: UserAction) -> Outcome:
        if inbound.address.channel_id == "C1":
            await is_second_done.wait()
        else:
            is_second_done.set()
        return Outcome()

    slack = EventHandler(client, UserLookup(client), receive)
    first = reaction("octagonal_sign")
    second: JsonObject = {**first, "item": {"type": "message", "channel": "C2", "ts": "1.5"}}
    began = time.monotonic()
    await asyncio.gather(slack.on_event(first), slack.on_event(second))
    assert time.monotonic() - began < 0.1
