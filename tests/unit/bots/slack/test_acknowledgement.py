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
from bots.slack.events.handler import EventHandler
from bots.slack.install.manifest import ASK_ANYWHERE, ASK_MESSAGE
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.people import People
from core.domain.errors import SurfaceError
from core.domain.json import JsonObject
from tests.histories.virtual_time import in_virtual_time
from tests.unit.bots.slack.test_parse import IDENTITY, REPLY, fixture, message, reaction

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


def handler(taken: list[UserAction]) -> EventHandler:
    async def receive(inbound: UserAction) -> Outcome:
        taken.append(inbound)
        return Outcome()

    async def admits(_inbound: UserAction) -> bool:
        return True

    client = SilentSlack()
    return EventHandler(client, People(client), receive, [GROUP], admits=admits)


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
