"""Feedback buttons under answers keep Slack's rules and are read back from a click."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from bots.delivery.content import AnswerPart
from bots.inbound.actions import FeedbackGiven
from bots.slack.events.parse import Ignored, ParseContext, parse_click
from bots.slack.render.block_kit import simplify_blocks
from bots.slack.render.messages import render_content
from bots.slack.web_api.client import Identity
from simulator.slack.block_kit.message_rules import check_message_blocks

CONTEXT = ParseContext(identity=Identity(team_id="T1", user_id="U0", bot_id="B0"))


def click(value: str, action_id: str = "feedback") -> FeedbackGiven | object:
    payload: Mapping[str, Any] = {
        "user": {"id": "U1"},
        "channel": {"id": "C1"},
        "message": {"ts": "2.0", "thread_ts": "1.0"},
        "actions": [{"action_id": action_id, "value": value, "action_ts": "3.0"}],
    }
    return parse_click(cast(dict[str, Any], payload), CONTEXT)


def test_only_the_last_part_of_an_answer_has_the_buttons_and_slack_accepts_them() -> None:
    first = render_content(AnswerPart(markdown="one", part=1, parts=2)).blocks
    last = render_content(AnswerPart(markdown="two", part=2, parts=2, run_id="run-1")).blocks
    assert "context_actions" not in [one["type"] for one in first]
    assert last[-1]["type"] == "context_actions"
    check_message_blocks([dict(one) for one in last])
    assert "context_actions" not in [one["type"] for one in simplify_blocks(last)]


@pytest.mark.parametrize(("sign", "is_good"), [("good", True), ("bad", False)])
@pytest.mark.parametrize("is_simple", [False, True])
def test_a_click_names_the_run_and_the_thread(sign: str, *, is_good: bool, is_simple: bool) -> None:
    """Simple blocks have two ordinary buttons, which Slack also takes where files are."""
    blocks = render_content(AnswerPart(markdown="done", run_id="run-1")).blocks
    buttons = simplify_blocks(blocks)[-1]["elements"]
    assert isinstance(buttons, list)
    pressed = cast(dict[str, str], buttons[0 if is_good else 1])
    given = click(pressed["value"], pressed["action_id"]) if is_simple else click(f"run-1:{sign}")
    assert isinstance(given, FeedbackGiven)
    assert (given.run_id, given.is_good) == ("run-1", is_good)
    assert given.address.thread_key == "1.0"


@pytest.mark.parametrize("value", ["", ":good", "run-1", "run-1:", "run-1:great", "good"])
def test_other_values_mean_nothing(value: str) -> None:
    assert isinstance(click(value), Ignored)
