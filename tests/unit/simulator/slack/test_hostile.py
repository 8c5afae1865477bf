"""Whatever an app sends, the simulated Slack answers in Slack's way and can still be looked at."""

import time
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.payloads import Refused
from simulator.slack.web_api import METHODS

WORDS = st.sampled_from(
    [
        *("type", "text", "mrkdwn", "plain_text", "section", "modal", "home", "id", "title"),
        *("blocks", "elements", "event_type", "event_payload", "channel", "thread", "root"),
        *("9" * 5000, "\ud800", "\x00", "0", "-1", "1.5", "markdown_text", "task_update", "eyes"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)
NAMES = st.sampled_from(
    [
        *("text", "blocks", "ts", "thread_ts", "timestamp", "name", "user", "users", "view"),
        *("metadata", "attachments", "limit", "cursor", "files", "length", "filename", "chunks"),
        *("view_id", "trigger_id", "status", "title", "prompts", "markdown_text", "file"),
        *("message_ts", "types", "user_id", "recipient_user_id", "recipient_team_id", "username"),
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(METHODS)), st.dictionaries(NAMES, JSON, max_size=6), st.data())
async def test_any_argument_is_taken_or_refused(method: str, arguments: dict[str, Any], data: st.DataObject) -> None:
    slack = SlackSimulator(settings=SlackSettings(rate_scale=0, subscriptions=()))
    root = await slack.say("alice", "general", "hi")
    channel = slack.channel("general").channel_id
    arguments = {"channel": channel, "channel_id": channel, **arguments}
    for name in ("ts", "thread_ts", "timestamp", "message_ts"):
        if data.draw(st.booleans()):
            arguments[name] = root
    for name in METHODS[method].required:
        arguments.setdefault(name, data.draw(JSON))
    try:
        answer = slack.web_api.run(slack.workspace, method, arguments, time.monotonic())
    except Refused as refusal:
        answer = refusal.answer()
    assert isinstance(answer["ok"], bool)
    slack.view()
