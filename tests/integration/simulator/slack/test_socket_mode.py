"""Socket Mode: connections, acknowledgements, redeliveries and disturbances."""

import json
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
