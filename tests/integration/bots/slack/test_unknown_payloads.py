"""What people use that this version does not know is acknowledged, and told to them or to the operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bots.inbound.actions import NOT_INSTALLED, UNKNOWN_CONTROL
from simulator.slack import SlackSimulator
from simulator.slack.events.delivery import Delivery
from simulator.slack.world import Workspace
from tests.integration.bots.slack.installable_app import opened
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, running
from tests.support.waiting import until

GONE = "of_another_version"
VIEW = {
    "id": "V1",
    "team_id": "T0SIM0001",
    "type": "modal",
    "callback_id": GONE,
    "blocks": [],
    "private_metadata": "{}",
    "state": {"values": {}},
    "hash": "1",
    "clear_on_close": False,
    "title": {"type": "plain_text", "text": "Old"},
    "close": None,
    "submit": None,
    "notify_on_close": True,
    "previous_view_id": None,
    "root_view_id": "V1",
    "app_id": "A1",
    "external_id": "",
    "app_installed_team_id": "T0SIM0001",
    "bot_id": "B1",
}
BUTTON = {
    "type": "button",
    "action_id": GONE,
    "action_ts": "1.2",
    "block_id": "b",
    "text": {"type": "plain_text", "text": "Go"},
    "value": "1",
}
MESSAGE = {"type": "message", "ts": "1700000000.000100", "text": "x", "user": "U1"}
INTERACTIONS: dict[str, dict[str, Any]] = {
    "click": {
        "type": "block_actions",
        "container": {"type": "message", "message_ts": "1700000000.000100"},
        "actions": [BUTTON],
    },
    "click in a view": {"type": "block_actions", "container": {"type": "view", "view_id": "V1"}, "actions": [BUTTON]},
    "shortcut": {"type": "shortcut", "callback_id": GONE, "action_ts": "1.2"},
    "message shortcut": {
        "type": "message_action",
        "callback_id": GONE,
        "action_ts": "1.2",
        "message_ts": MESSAGE["ts"],
        "message": MESSAGE,
    },
    "form": {"type": "view_submission", "view": VIEW},
    "closed form": {"type": "view_closed", "view": VIEW, "is_cleared": False},
    "command": {"command": "/threadhand", "text": "Draw a chart"},
}


async def use(slack: SlackSimulator, workspace: Workspace, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the app acknowledges it with. Raises TimeoutError if it is not acknowledged."""
    user_id = next(one.user_id for one in workspace.members.values() if not one.is_bot)
    trigger, team_id = workspace.new_trigger(user_id, is_expired=False), workspace.team_id
    common = {"token": "simulated", "api_app_id": "A1", "response_url": "http://127.0.0.1:9/"}
    body = {**common, "trigger_id": trigger, **payload}
    kind = "interactive" if "type" in payload else "slash_commands"
    if kind == "slash_commands":
        body |= {"team_id": team_id, "team_domain": "simulated", "user_id": user_id}
        body |= {"user_name": "alice", "channel_id": channel_of(slack), "channel_name": "general"}
    else:
        person = {"id": user_id, "name": "alice", "username": "alice", "team_id": team_id}
        body |= {"user": person, "team": {"id": team_id, "domain": "simulated"}}
        body |= {"enterprise": None, "is_enterprise_install": False}
        if payload.get("container", {}).get("type") != "view":
            body["channel"] = {"id": channel_of(slack), "name": "general"}
    delivery = Delivery(kind=kind, payload=body, accepts_answer=True)
    return await slack.outbox.ask(delivery, name=kind) or {}


@pytest.mark.parametrize("kind", ["click", "click in a view", "shortcut", "message shortcut"])
async def test_what_slack_answers_with_nothing_is_told_to_the_person(
    slack: SlackSimulator, receiver: RecordingReceiver, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async with running(slack, receiver):
        await use(slack, slack.workspace, INTERACTIONS[kind])
        alice = slack.member("alice").user_id
        direct = slack.workspace.direct_with(alice, slack.workspace.bot.user_id)
        await until(lambda: [one.text for one in direct.messages.values()])
        assert [one.text for one in direct.messages.values()] == [UNKNOWN_CONTROL]
    assert any(GONE in one for one in caplog.messages)
    assert receiver.taken == []


async def test_a_form_that_the_app_does_not_know_says_so(
    slack: SlackSimulator, receiver: RecordingReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(slack, receiver):
        answer = await use(slack, slack.workspace, INTERACTIONS["form"])
    assert answer["response_action"] == "update"
    assert UNKNOWN_CONTROL in str(answer["view"])
    assert any(GONE in one for one in caplog.messages)
    assert receiver.taken == []


@pytest.mark.parametrize("kind", INTERACTIONS)
async def test_a_workspace_that_removed_the_app_is_answered_where_that_needs_no_token(
    slack: SlackSimulator, receiver: RecordingReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    team_id = slack.workspace.team_id
    async with opened(slack, receiver, tmp_path, allowed=(team_id,)):
        answer = await use(slack, slack.workspace, INTERACTIONS[kind])
    assert (NOT_INSTALLED in str(answer)) is (kind in ("form", "command"))
    assert any(team_id in one and "not installed" in one for one in caplog.messages)
    assert receiver.taken == []


async def test_a_closed_form_is_acknowledged(slack: SlackSimulator, receiver: RecordingReceiver) -> None:
    async with running(slack, receiver):
        assert await use(slack, slack.workspace, INTERACTIONS["closed form"]) == {}
    assert receiver.taken == []
