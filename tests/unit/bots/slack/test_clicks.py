"""Clicks on our controls, parsed from the payload alone; and no payload, however hostile, breaks a parser."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.inbound.actions import RunButtonPressed
from bots.slack.events.parse import Ignored, parse_click, parse_event
from core.domain.actions import AskAnswered
from core.domain.json import JsonObject
from tests.support.narrow import require_type
from tests.unit.bots.slack.events.test_parse import ALICE, KNOWN, ROOT, fixture, thread


def test_a_button_answers_the_question_with_its_own_text():
    parsed = parse_click(fixture("button_pressed"), KNOWN)
    assert parsed == AskAnswered(
        address=thread(),
        dedupe_key="slack:T1:C1:action:1700000020.000100:ask:a-1:1:1700000021.000100",
        ask_id="a-1",
        text="Blue",
        option=1,
        person=ALICE,
        sent_at=datetime.fromtimestamp(1700000021.0001, UTC),
    )


@pytest.mark.parametrize("action", ["stop", "retry", "continue"])
def test_the_buttons_of_the_status_message(action: str):
    payload = fixture("button_pressed")
    payload["actions"] = [{"action_id": f"run:{action}", "value": "r1", "action_ts": "9.1"}]
    parsed = require_type(parse_click(payload, KNOWN), RunButtonPressed)
    assert (parsed.run_id, parsed.action, parsed.address) == ("r1", action, thread())


@pytest.mark.parametrize(
    "actions", [[], [{"action_id": "run:explode", "value": "r1"}], [{"action_id": "ask:a"}], ["x"], None]
)
def test_unknown_clicks_are_left_alone(actions: object):
    payload = {**fixture("button_pressed"), "actions": actions}
    assert isinstance(parse_click(payload, KNOWN), Ignored)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
fields = st.sampled_from(
    [
        *("type", "subtype", "user", "text", "ts", "thread_ts", "channel", "message", "files"),
        *("previous_message", "item", "reaction", "blocks", "attachments", "edited", "actions"),
        *("container", "elements", "deleted_ts"),
    ]
)
kinds = st.sampled_from(["message", "app_mention", "reaction_added", "message_changed", ROOT, "C1", "x"])
hostile = st.dictionaries(fields, kinds | json_values | st.dictionaries(fields, kinds | json_values), max_size=12)


@given(hostile)
def test_no_payload_breaks_the_parser(payload: JsonObject):
    parse_event(payload, KNOWN)
    parse_click(payload, KNOWN)
