"""Slack Connect: with the app in several workspaces that share a channel, the bot that is mentioned answers once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest

from bots.inbound.actions import Outcome, UserAction
from bots.inbound.retry_buffer import RetryBuffer
from bots.slack.events.bolt import build_bolt_app
from bots.slack.events.handler import EventHandler
from bots.slack.web_api.client import Identity, SlackClient
from bots.slack.workspaces import Workspaces
from core.domain.actions import IncomingMessage
from simulator.slack import SlackSimulator
from tests.support.memory_tokens import MemoryTokens, access_of

TEAMS = ("T1", "T2")


@dataclass
class SharedApp:
    """The app in two workspaces. `heard` has each message with its workspace; a second copy is dropped as stored."""

    bolt: AsyncApp
    heard: dict[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])

    async def receive(self, inbound: UserAction) -> Outcome:
        assert isinstance(inbound, IncomingMessage)
        if inbound.dedupe_key in self.heard:
            return Outcome(is_ignored=True)
        self.heard[inbound.dedupe_key] = inbound.address.workspace_id, inbound.is_addressed
        return Outcome()

    @property
    def addressed(self) -> list[str]:
        return [team_id for team_id, is_addressed in self.heard.values() if is_addressed]

    async def deliver(self, event: dict[str, Any], *, by: tuple[str, ...], **outer: object) -> None:
        """`by`: the workspaces among the event's authorizations."""
        body = {
            "type": "event_callback",
            "event_id": f"Ev{by}",
            "team_id": by[0] if by else "",
            "context_team_id": by[0] if by else "",
            "is_ext_shared_channel": True,
            "authorizations": [{"team_id": one, "user_id": f"U{one}", "is_enterprise_install": False} for one in by],
            "event": event,
            **outer,
        }
        answer = await self.bolt.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
        assert answer.status == 200


@pytest.fixture
async def app() -> AsyncIterator[SharedApp]:
    async with SlackSimulator() as slack:
        known = {
            one: replace(access_of(one), identity=Identity(team_id=one, user_id=f"U{one}", bot_id="B")) for one in TEAMS
        }
        workspaces = Workspaces(
            tokens=MemoryTokens(known),
            new_client=lambda token: SlackClient(bot_token=token, api_url=slack.api_url),
            new_event_handler=lambda client, people: EventHandler(
                client, people, lambda inbound: made.receive(inbound)
            ),
        )
        client = SlackClient(bot_token="xoxb-none", api_url=slack.api_url)
        made = SharedApp(build_bolt_app(client, workspaces, uninstalled, RetryBuffer("slack")))
        yield made
        await workspaces.close()
        await client.close()


async def uninstalled(_team_id: str) -> None:
    raise AssertionError("nobody removed the app")


def message(text: str, *, ts: str = "1700000000.000100", team: str = "T2", **more: str) -> dict[str, Any]:
    return {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U5",
        "team": team,
        "text": text,
        "ts": ts,
        **more,
    }


@pytest.mark.parametrize("by", [("T1", "T2"), ("T2", "T1"), ("T2",)])
@pytest.mark.parametrize("author_team", ["T1", "T9"])
async def test_the_mentioned_bot_hears_of_it_whichever_workspace_it_is_delivered_for(
    app: SharedApp, by: tuple[str, ...], author_team: str
) -> None:
    if by == ("T2",):  # then the bot of T1 is known from its own arrival in the channel
        joined = {"type": "member_joined_channel", "user": "UT1", "team": "T1", "channel": "C1"}
        await app.deliver(joined, by=by)
    await app.deliver(message("<@UT1> begin", team=author_team), by=by)
    assert list(app.heard.values()) == [("T1", True)]


async def test_an_event_that_comes_once_for_each_workspace_is_answered_once(app: SharedApp) -> None:
    said = message("<@UT1> begin")
    await asyncio.gather(*(app.deliver(said, by=(one,), team_id="T1") for one in ("T1", "T2", "T1")))
    assert app.addressed == ["T1"]


async def test_a_reply_reaches_every_bot_that_may_be_in_the_thread(app: SharedApp) -> None:
    reply = message("go on", ts="1700000009.000100", thread_ts="1700000000.000100")
    await app.deliver(reply, by=("T1", "T2"))
    assert sorted(app.heard.values()) == [("T1", False), ("T2", False)]


async def test_in_a_channel_of_one_workspace_no_other_hears_of_it(app: SharedApp) -> None:
    said = message("<@UT1> begin", team="T1")
    await app.deliver(said, by=("T2",), is_ext_shared_channel=False)
    await app.deliver(said, by=("T2",), is_ext_shared_channel="true")
    assert app.addressed == []


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["T1", "T2", "T9", "E1", "", "x"]), max_size=4),
    st.sampled_from(["T1", "T2", "T9", ""]),
    st.sampled_from(["<@UT1>", "<@UT2>", "<@UT9>", "<@UT1> <@UT2>", "x"]),
)
async def test_whatever_is_named_at_most_one_bot_is_addressed(
    app: SharedApp, by: list[str], team: str, text: str
) -> None:
    app.heard.clear()
    await app.deliver(message(text, team=team), by=tuple(by))
    assert len(app.addressed) <= 1


async def test_of_two_mentioned_bots_the_first_answers(app: SharedApp) -> None:
    await app.deliver(message("<@UT2> or <@UT1>, begin"), by=("T1", "T2"))
    await app.deliver(message("<@UT2> or <@UT1>, begin"), by=("T2", "T1"))
    assert app.addressed == ["T2"]
