"""What goes out to Slack: errors told apart, limits obeyed, nothing sent twice."""

from typing import Literal

import pytest

from bots.delivery.content import AnswerPart
from bots.slack.app import SlackApp
from core.domain.errors import ConfigurationError, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Address
from simulator.slack import SlackSimulator
from tests.integration.bots.slack.socket_mode_app import RecordingReceiver, replies, started
from tests.integration.bots.slack.storing_app import calls_of

ANSWER = AnswerPart(markdown="An answer.")


async def test_a_rate_limit_is_waited_for(slack: SlackSimulator, speaker: SlackApp, address: Address):
    slack.misbehave("rate_limit", method="chat.postMessage", seconds=1)
    await speaker.surface.post(address, ANSWER, delivery_id="d1")
    assert (calls_of(slack, "chat.postMessage"), replies(slack)) == (2, 1)


@pytest.mark.parametrize(("fault", "posted"), [("server_error", 0), ("error_after", 1)])
async def test_an_unclear_post_is_never_repeated_and_can_be_found(
    slack: SlackSimulator,
    speaker: SlackApp,
    address: Address,
    fault: Literal["server_error", "error_after"],
    posted: int,
):
    slack.misbehave(fault, method="chat.postMessage")
    with pytest.raises(SurfaceUnclear):
        await speaker.surface.post(address, ANSWER, delivery_id="d1")
    assert (calls_of(slack, "chat.postMessage"), replies(slack)) == (1, posted)
    found = await speaker.surface.find(address, "d1")
    assert (found is not None) == bool(posted)
    assert await speaker.surface.find(address, "d2") is None


async def test_finding_reads_every_page_of_a_long_thread(
    speaker: SlackApp, address: Address, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bots.slack.limits.THREAD_PAGE_MAX", 1)
    refs = [await speaker.surface.post(address, ANSWER, delivery_id=f"d{number}") for number in range(3)]
    assert await speaker.surface.find(address, "d2") == refs[2]


async def test_a_person_is_told_in_a_direct_message_what_the_channel_refuses(
    slack: SlackSimulator, speaker: SlackApp, address: Address
):
    slack.workspace.channels[address.channel_id].is_archived = True
    with pytest.raises(SurfaceRefused) as refusal:
        await speaker.surface.post(address, ANSWER, delivery_id="d1")
    assert refusal.value.code in speaker.surface.closed_reasons
    alice = slack.member("alice")
    (direct,) = [one async for one in speaker.surface.fallback_addresses(address, alice.user_id)]
    posted = await speaker.surface.post(direct, ANSWER, delivery_id="d2")
    assert await speaker.surface.find(direct, "d2") == posted
    assert await speaker.surface.find(direct, "d1") is None
    assert direct.channel_id == slack.workspace.direct[alice.user_id].channel_id
    assert [one async for one in speaker.surface.fallback_addresses(direct, alice.user_id)] == []


async def test_a_slack_out_of_reach_is_told_to_the_operator():
    app = SlackApp(bot_token="xoxb-1", api_url="http://127.0.0.1:9/api/")
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        await app.start()


@pytest.mark.parametrize(
    ("tokens", "setting"),
    [
        ({"bot_token": "xoxb-wrong"}, "THREADHAND_SLACK_BOT_TOKEN"),
        ({"app_token": "xapp-wrong"}, "THREADHAND_SLACK_APP_TOKEN"),
    ],
)
async def test_a_wrong_token_is_told_to_the_operator(
    slack: SlackSimulator, receiver: RecordingReceiver, tokens: dict[str, str], setting: str
):
    right = {"bot_token": slack.settings.bot_token, "app_token": slack.settings.app_token}
    app = SlackApp(**{**right, **tokens}, api_url=slack.api_url, receive=receiver.receive)
    with pytest.raises(ConfigurationError, match=setting):
        await app.start()


async def test_an_app_that_cannot_hear_is_told_to_the_operator(receiver: RecordingReceiver):
    with pytest.raises(ConfigurationError, match="THREADHAND_SLACK_SIGNING_SECRET"):
        SlackApp(bot_token="xoxb-1", receive=receiver.receive)


async def test_a_start_waits_while_slack_asks_for_patience(slack: SlackSimulator):
    slack.misbehave("rate_limit", method="auth.test", times=6, seconds=1)
    async with started(slack) as app:
        assert app.identity.team_id
