"""Socket Mode: connections, acknowledgements, redeliveries and disturbances."""

import json
from collections import Counter
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator
from tests.integration.simulator.slack.conftest import Recorder
from tests.support.waiting import until

QUICK = SlackSettings(
    rate_scale=0, ack_seconds=0.1, retry_seconds=(0.0, 0.02, 0.04), subscriptions=("message.channels",)
)  # fmt: skip


class Listener:
    """A Socket Mode client that acknowledges only what it is told to."""

    def __init__(self, slack: SlackSimulator, *, acknowledges: bool = True) -> None:
        self.slack = slack
        self.acknowledges = acknowledges
        self.session = aiohttp.ClientSession()
        self.frames: list[dict[str, Any]] = []
        self.url = ""

    async def __aenter__(self) -> "Listener":
        client = AsyncWebClient(base_url=self.slack.api_url)
        opened = await client.apps_connections_open(app_token=self.slack.settings.app_token)
        self.url = str(opened["url"])
        self.socket = await self.session.ws_connect(self.url)
        self.hello = await self.socket.receive_json()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()
        await self.session.close()

    async def take(self) -> dict[str, Any]:
        frame = json.loads(await self.socket.receive_str(timeout=30))
        self.frames.append(frame)
        if self.acknowledges and "envelope_id" in frame:
            await self.socket.send_json({"envelope_id": frame["envelope_id"]})
        return frame


async def test_a_connection_is_greeted_and_its_ticket_is_used_up() -> None:
    async with SlackSimulator(settings=QUICK) as slack, Listener(slack) as listener:
        assert listener.hello["type"] == "hello"
        assert listener.hello["num_connections"] == 1
        assert "debug_info" in listener.hello
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await listener.session.ws_connect(listener.url)


async def test_an_event_without_acknowledgement_comes_again_three_times() -> None:
    async with SlackSimulator(settings=QUICK) as slack, Listener(slack, acknowledges=False) as listener:
        await slack.say("alice", "general", "hi")
        frames = [await listener.take() for _ in range(4)]
        assert [frame["retry_attempt"] for frame in frames] == [0, 1, 2, 3]
        assert [frame["retry_reason"] for frame in frames] == ["", "timeout", "timeout", "timeout"]
        assert len({frame["payload"]["event_id"] for frame in frames}) == 1
        assert len({frame["envelope_id"] for frame in frames}) == 4


async def test_events_go_round_the_connections() -> None:
    async with SlackSimulator(settings=QUICK) as slack, Listener(slack) as first, Listener(slack) as second:
        assert second.hello["num_connections"] == 2
        for number in range(4):
            await slack.say("alice", "general", str(number))
        for _ in range(2):
            await first.take()
            await second.take()
        texts = [frame["payload"]["event"]["text"] for frame in (*first.frames, *second.frames)]
        assert sorted(texts) == ["0", "1", "2", "3"]


async def test_an_event_waits_for_a_connection() -> None:
    async with SlackSimulator(settings=QUICK) as slack:
        await slack.say("alice", "general", "early")
        async with Listener(slack) as listener:
            assert (await listener.take())["payload"]["event"]["text"] == "early"


async def test_what_a_broken_connection_took_along_comes_over_the_next() -> None:
    settings = SlackSettings(rate_scale=0, subscriptions=("message.channels",))
    async with SlackSimulator(settings=settings) as slack:
        async with Listener(slack, acknowledges=False) as lost:
            await slack.say("alice", "general", "hi")
            await lost.take()
            slack.misbehave("drop_connection")
            await until(lambda: not slack.view().is_bot_connected)
        async with Listener(slack) as listener:
            frame = await listener.take()
            assert frame["retry_attempt"] == 1
            assert frame["retry_reason"] == "connection_failed"


async def test_a_redelivery_reaches_bolt_with_the_retry_headers() -> None:
    async with SlackSimulator(settings=QUICK) as slack:
        async with Listener(slack, acknowledges=False) as lost:
            await slack.say("alice", "general", "hi")
            await lost.take()
        async with Recorder(slack) as bot:
            await until(lambda: bot.events)
            assert bot.headers[0]["x-slack-retry-num"] == ["1"]


async def test_no_event_is_lost_when_connections_break() -> None:
    settings = SlackSettings(rate_scale=0, retry_seconds=(0.0, 0.01, 0.02), subscriptions=("message.channels",))
    async with SlackSimulator(settings=settings) as slack:
        heard: set[str] = set()
        sent: set[str] = set()
        for _ in range(2):
            async with Listener(slack, acknowledges=False) as listener:
                sent |= {await slack.say("alice", "general", str(number)) for number in range(5)}
                await listener.take()
                slack.misbehave("drop_connection")
                await until(lambda: not slack.view().is_bot_connected)
        async with Listener(slack) as listener:
            while heard != sent:
                heard.add((await listener.take())["payload"]["event"]["ts"])


@pytest.mark.parametrize(
    ("fault", "seconds", "said", "heard"),
    [
        ("duplicate", None, ["hi"], ["hi", "hi"]),
        ("reorder", None, ["first", "second"], ["second", "first"]),
        ("reorder", 0.05, ["only"], ["only"]),
        ("delay", 0.2, ["late", "prompt"], ["prompt", "late"]),
    ],
    ids=["duplicate", "reorder", "reorder an event that stays alone", "delay"],
)
async def test_events_come_otherwise_than_they_were_sent(
    slack: SlackSimulator, bot: Recorder, fault: str, seconds: float | None, said: list[str], heard: list[str]
) -> None:
    slack.misbehave(fault, method="message*", **({"seconds": seconds} if seconds else {}))
    for text in said:
        await slack.say("alice", "general", text)
    await until(lambda: len(bot.events) == len(heard))
    assert [event["text"] for event in bot.events] == heard
    assert len({body["event_id"] for body in bot.bodies}) == len(said)


async def test_the_app_hears_only_what_it_may() -> None:
    settings = SlackSettings(rate_scale=0, scopes=("app_mentions:read", "chat:write"))
    async with SlackSimulator(settings=settings) as slack, Recorder(slack) as bot:
        await slack.say("alice", "general", "no mention")
        await slack.say("alice", "general", "@threadhand hi")
        await until(lambda: bot.events)
        assert Counter(bot.kinds()) == {"app_mention": 1}


async def test_the_eleventh_connection_ends_the_first() -> None:
    async with SlackSimulator(settings=QUICK) as slack, Listener(slack) as first:
        others = [Listener(slack) for _ in range(10)]
        try:
            for other in others:
                await other.__aenter__()
            frame = await first.take()
            assert (frame["type"], frame["reason"]) == ("disconnect", "too_many_websockets")
        finally:
            for other in others:
                await other.__aexit__()
