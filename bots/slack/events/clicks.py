"""Clicks on the buttons and selects of our messages, parsed from the payload alone, so that a restart loses none."""

from datetime import UTC, datetime
from typing import Literal, cast

from bots.inbound.decide import AskAnswered, Inbound, RunButtonPressed
from bots.slack.events.parse import Ignored, Known, moment
from bots.slack.events.payload import child, children, text
from core.domain.messages import JsonObject

ASK_PREFIX = "ask:"
RUN_PREFIX = "run:"
_RUN_ACTIONS = frozenset({"stop", "retry", "continue"})


def parse_click(payload: JsonObject, known: Known) -> Inbound | Ignored:
    """What a `block_actions` payload asks for. Raises nothing, whatever the payload."""
    actions = children(payload, "actions")
    if not actions:
        return Ignored(reason="no action")
    action = actions[0]
    action_id, user = text(action, "action_id"), text(payload, "user", "id")
    channel = text(payload, "channel", "id") or text(payload, "container", "channel_id")
    ts = text(payload, "message", "ts") or text(payload, "container", "message_ts")
    if not (user and channel and ts):
        return Ignored(reason="malformed")
    thread_ts = text(payload, "message", "thread_ts") or text(payload, "container", "thread_ts")
    address = known.address(channel, thread_ts or ts)
    key = known.key(channel, "action", ts, action_id, user, text(action, "action_ts"))
    person = known.person(user)
    value = text(action, "value") or text(child(action, "selected_option"), "value")
    if action_id.startswith(ASK_PREFIX) and value:
        return AskAnswered(
            address=address,
            dedupe_key=key,
            ask_id=action_id.removeprefix(ASK_PREFIX).partition(":")[0],
            value=value,
            person=person,
            sent_at=_clicked_at(action),
        )
    wish = action_id.removeprefix(RUN_PREFIX)
    if action_id.startswith(RUN_PREFIX) and wish in _RUN_ACTIONS and value:
        return RunButtonPressed(
            address=address,
            dedupe_key=key,
            run_id=value,
            action=cast(Literal["stop", "retry", "continue"], wish),
            person=person,
        )
    return Ignored(reason="unknown action")


def _clicked_at(action: JsonObject) -> datetime:
    clicked = moment(text(action, "action_ts"))
    return clicked if clicked.timestamp() else datetime.now(UTC)
