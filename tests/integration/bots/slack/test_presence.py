"""Slack shows the agent at work, offers its own stop button, and its refusals disturb nobody."""

from dataclasses import replace

import pytest

from bots.slack.app import SlackApp
from bots.slack.install.manifest import BOT_EVENTS, BOT_SCOPES
from core.domain.actions import StopRequested
from core.domain.threads import Address
from simulator.slack import SlackSettings, SlackSimulator
from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.web_api import METHODS, Call
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, channel_of, general, running
from tests.support.waiting import until

SESSION, LINE = "agents.sessions.setStatus", "assistant.threads.setStatus"


def statuses(slack: SlackSimulator) -> list[tuple[str, str]]:
    return [(call.method, call.error) for call in slack.calls if "setStatus" in call.method]


async def test_slacks_own_stop_button_is_a_wish_to_stop():
    receiver = RecordingReceiver()
    settings = SlackSettings(scopes=BOT_SCOPES, subscriptions=BOT_EVENTS)
    async with SlackSimulator(settings=settings) as slack, running(slack, receiver) as app:
        root = await slack.say("alice", channel_of(slack), "@threadhand count")
        await until(lambda: receiver.taken)
        address = receiver.taken[0].address
        async with app.surface.typing(address):
            assert general(slack).typing
            await slack.stop_session("alice", channel_of(slack), root)
            await until(lambda: len(receiver.taken) == 2)
        assert not general(slack).typing
        with pytest.raises(ValueError, match="no session is processing"):
            await slack.stop_session("alice", channel_of(slack), root)
        assert statuses(slack) == [(SESSION, "")] * 2
    stop = receiver.taken[1]
    assert isinstance(stop, StopRequested)
    assert stop.address == address
    assert stop.person.person_id == slack.member("alice").user_id


@pytest.mark.parametrize("refusal", ["feature_not_enabled", "missing_scope", "not_authorized", "unknown_method"])
async def test_an_app_without_sessions_shows_the_line_and_asks_no_more(
    slack: SlackSimulator, speaker: SlackApp, address: Address, monkeypatch: pytest.MonkeyPatch, refusal: str
):
    def refuse(call: Call) -> Payload:
        raise Refused(refusal)

    monkeypatch.setitem(METHODS, SESSION, replace(METHODS[SESSION], run=refuse))
    for _ in range(2):
        async with speaker.surface.typing(address):
            assert general(slack).typing
        assert not general(slack).typing
    assert statuses(slack) == [(SESSION, refusal), *[(LINE, "")] * 4]


async def test_typing_that_slack_refuses_is_no_error(slack: SlackSimulator, speaker: SlackApp):
    address = Address(
        platform="slack", workspace_id=slack.workspace.team_id, channel_id=channel_of(slack), thread_key="1.000001"
    )
    async with speaker.surface.typing(address):
        pass
    assert statuses(slack) == [(SESSION, "thread_not_found")] * 2
