"""How an agent is named in Slack: a word after a mention, or the beginning of a message."""

import pytest

from bots.inbound.actions import CommandCalled
from bots.slack.events.parse import parse_event
from core.domain.actions import IncomingMessage, MessageEdited
from tests.support.narrow import require_type
from tests.unit.bots.slack.test_parse import KNOWN, fixture, message


@pytest.mark.parametrize(("said", "name"), [("use", ""), ("Use Research", "Research")])
def test_use_takes_a_name_and_no_files(said: str, name: str):
    command = require_type(parse_event(message(f"<@U0> {said}"), KNOWN), CommandCalled)
    assert (command.name, command.argument) == ("use", name)
    for request in (f"{said} for this", f"please {said}"):
        assert isinstance(parse_event(message(f"<@U0> {request}"), KNOWN), IncomingMessage)


def test_a_leading_agent_is_who_is_asked_and_no_part_of_the_text():
    asked = require_type(parse_event(message("<@U0> agent:Research who was it?"), KNOWN), IncomingMessage)
    assert (asked.agent_id, asked.text) == ("research", "who was it?")


def test_an_edit_of_such_a_message_has_the_text_alone():
    edit = fixture("message_edited")
    edited = {**edit["message"], "text": "<@U0> agent:research count to four"}
    parsed = require_type(parse_event({**edit, "message": edited}, KNOWN), MessageEdited)
    assert parsed.text == "count to four"
