"""A signed payload with a field that is missing or of another type never makes the app fail."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from yarl import URL

from tests.integration.bots.slack.test_http import http_app, send, signed, url  # noqa: F401
from tests.unit.bots.slack.events.test_parse import SLACK_FIXTURES, fixture

TEAM = {"id": "T0SIM0001", "domain": "t"}
USER = {"id": "U1", "username": "alice", "name": "alice", "team_id": "T0SIM0001"}
VIEW = {
    "id": "V1",
    "team_id": "T0SIM0001",
    "type": "modal",
    "callback_id": "ask_anywhere",
    "private_metadata": '{"channel": "", "ts": "", "thread_ts": ""}',
    "state": {"values": {"request": {"request": {"type": "plain_text_input", "value": "hi"}}}},
}
PLACE = {"trigger_id": "1.2.3", "user": USER, "team": TEAM, "enterprise": None}
FORMS: dict[str, dict[str, Any]] = {
    "command": {
        "command": "/threadhand",
        "text": "status",
        "team_id": "T0SIM0001",
        "channel_id": "C1",
        "user_id": "U1",
        "is_enterprise_install": "false",
        "trigger_id": "1.2.3",
        "response_url": "http://127.0.0.1:9/r",
    },
    "view_submission": {"type": "view_submission", "view": VIEW, "response_urls": [], **PLACE},
    "view_closed": {"type": "view_closed", "view": VIEW, "is_cleared": False, **PLACE},
    "shortcut": {"type": "shortcut", "callback_id": "ask_anywhere", **PLACE},
    "message_action": {
        "type": "message_action",
        "callback_id": "ask_about_message",
        "channel": {"id": "C1", "name": "general"},
        "message": {"type": "message", "user": "U1", "ts": "1700000000.000100", "text": "x"},
        **PLACE,
    },
    "button_pressed": fixture("button_pressed"),
}
ENVELOPE = {
    "type": "event_callback",
    "team_id": "T0SIM0001",
    "event_id": "Ev1",
    "authorizations": [{"team_id": "T0SIM0001", "user_id": "U0", "is_bot": True, "is_enterprise_install": False}],
}
RECORDED = [path.stem for path in sorted(SLACK_FIXTURES.glob("message_*.json"))]
EVENTS: dict[str, dict[str, Any]] = {name: fixture(name) for name in RECORDED} | {
    "app_home_opened": {"type": "app_home_opened", "user": "U1", "channel": "D1", "tab": "home"},
    "member_joined": {"type": "member_joined_channel", "user": "U1", "channel": "C1"},
    "reaction_added": {
        "type": "reaction_added",
        "user": "U1",
        "reaction": "eyes",
        "item": {"type": "message", "channel": "C1", "ts": "1700000000.000100"},
    },
    "tokens_revoked": {"type": "tokens_revoked", "tokens": {"oauth": ["U1"], "bot": []}},
}
PAYLOADS = FORMS | {name: {**ENVELOPE, "event": event} for name, event in EVENTS.items()}
MISSING = object()


def places(source: Any) -> Iterator[tuple[str | int, ...]]:
    """Yields the path of every field."""
    items = source.items() if isinstance(source, dict) else enumerate(source)
    for key, value in items:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in places(value))


def changed(source: Any, place: tuple[str | int, ...], value: object) -> Any:
    copy = json.loads(json.dumps(source))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


@st.composite
def changed_payloads(draw: st.DrawFn) -> dict[str, Any]:
    source = PAYLOADS[draw(st.sampled_from(sorted(PAYLOADS)))]
    place = draw(st.sampled_from(sorted(places(source), key=str)))
    values = (MISSING, None, 5, True, "", "x", [], [5], ["x"], {}, {"id": ["x"]})
    return changed(source, place, draw(st.sampled_from(values)))


async def status_of(url: URL, payload: dict[str, Any]) -> int:  # noqa: F811
    raw = json.dumps(payload)
    if payload.get("type") == "event_callback":
        return (await send(url, raw.encode(), signed(raw.encode())))[0]
    is_command = "command" in payload and all(isinstance(one, str) for one in payload.values())
    body = urlencode(payload if is_command else {"payload": raw}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return (await send(url, body, {**signed(body), **form}))[0]


async def test_a_payload_as_it_is_is_accepted(url: URL):  # noqa: F811
    assert {name: await status_of(url, one) for name, one in PAYLOADS.items()} == dict.fromkeys(PAYLOADS, 200)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=changed_payloads())
@example(payload={"command": "/threadhand", "team_id": ["T"]})
@example(payload=changed(FORMS["view_submission"], ("view", "type"), MISSING))
@example(payload=changed(FORMS["view_submission"], ("view", "private_metadata"), "x"))
@example(payload=changed(FORMS["view_submission"], ("view", "private_metadata"), "[5]"))
@example(payload=changed(FORMS["view_submission"], ("view", "private_metadata"), "[" * 50_000))
async def test_a_changed_field_makes_no_failure(url: URL, payload: dict[str, Any]):  # noqa: F811
    assert await status_of(url, payload) < 500


async def test_a_refused_shape_is_logged_once(url: URL, caplog: pytest.LogCaptureFixture):  # noqa: F811
    assert await status_of(url, {"command": "/threadhand", "team_id": ["T"]}) == 400
    (line,) = [one for one in caplog.messages if "unexpected shape" in one]
    assert '"T"' not in line
