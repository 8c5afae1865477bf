"""How an agent is named in Slack: a word after a mention, or the beginning of a message."""

from bots.slack.events.parse import parse_event
from core.domain.actions import IncomingMessage, MessageEdited
from tests.support.narrow import require_type
from tests.unit.bots.slack.events.test_parse import KNOWN, fixture, message


def test_a_leading_agent_is_who_is_asked_and_no_part_of_the_text():
    asked = require_type(parse_event(message("<@U0> agent:Research who was it?"), KNOWN), IncomingMessage)
    assert (asked.agent_id, asked.text) == ("research", "who was it?")


def test_an_edit_of_such_a_message_has_the_text_alone():
    edit = fixture("message_edited")
    edited = {**edit["message"], "text": "<@U0> agent:research count to four"}
    parsed = require_type(parse_event({**edit, "message": edited}, KNOWN), MessageEdited)
    assert parsed.text == "count to four"
