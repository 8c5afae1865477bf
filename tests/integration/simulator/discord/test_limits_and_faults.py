"""Rate limits and faults, plain and through the client library."""

import asyncio
import time

import discord
import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Rest, connected
from tests.integration.simulator.discord.socket import opened
from tests.support.narrow import require_type

MESSAGES = "/channels/4001/messages"
POST = f"POST {MESSAGES}"


async def test_a_bucket_is_told_in_headers_and_refuses_when_empty(rest: Rest) -> None:
    rest.simulator.settings.rate_limit_scale = 0.2
    headers = {"Authorization": "Bot test-token"}
    url = rest.simulator.api_url + MESSAGES
    left: list[str] = []
    for n in range(5):
        async with rest.session.post(url, json={"content": str(n)}, headers=headers) as response:
            left.append(response.headers["X-RateLimit-Remaining"])
            assert response.headers["X-RateLimit-Limit"] == "5"
    assert left == ["4", "3", "2", "1", "0"]
    async with rest.session.post(url, json={"content": "6"}, headers=headers) as response:
        assert response.status == 429
        assert response.headers["Via"]
        assert response.headers["X-RateLimit-Scope"] == "user"
        assert int(response.headers["Retry-After"]) == 1
        body = await response.json()
    assert 0 < body["retry_after"] <= 1
    assert body["global"] is False
    assert len(rest.simulator.view().channels[0].messages) == 5
    other = "/channels/4002/messages"
    assert (await rest("POST", other, {"content": "another bucket"}))[0] == 200
    await asyncio.sleep(body["retry_after"])
    assert (await rest("POST", MESSAGES, {"content": "7"}))[0] == 200


async def test_all_calls_together_are_limited(rest: Rest) -> None:
    rest.simulator.settings.rate_limit_scale = 1000
    answers = [await rest("GET", "/users/@me") for _ in range(51)]
    assert [status for status, _ in answers].count(200) == 50
    assert answers[-1][1]["global"] is True


@pytest.mark.usefixtures("library")
async def test_the_client_waits_for_its_limits(simulator: DiscordSimulator) -> None:
    simulator.settings.rate_limit_scale = 0.1
    async with connected() as bot:
        channel = require_type(bot.get_channel(4001), discord.TextChannel)
        before = time.monotonic()
        await asyncio.gather(*(channel.send(str(n)) for n in range(12)))
        assert time.monotonic() - before > 0.8
        assert len(simulator.view().channels[0].messages) == 12


@pytest.mark.usefixtures("library")
async def test_the_client_obeys_a_429_and_repeats_a_500(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        channel = require_type(bot.get_channel(4001), discord.TextChannel)
        simulator.misbehave("rate_limit", method="POST /channels/*/messages", seconds=0.05)
        await channel.send("after a wait")
        simulator.misbehave("error_after", method="POST /channels/*/messages")
        await channel.send("once", nonce="n1")
        posts = [call.status for call in simulator.calls if call.method == "POST"]
        assert posts == [429, 200, 500, 200]
        assert len(simulator.view().channels[0].messages) == 2


async def test_clearing_the_faults_lets_a_held_event_go(simulator: DiscordSimulator) -> None:
    async with opened(simulator) as socket:
        await socket.identify()
        await socket.event("GUILD_CREATE")
        simulator.misbehave("reorder", seconds=60)
        await simulator.say("alice", "4001", "held")
        simulator.misbehave("none")
        assert (await socket.event("MESSAGE_CREATE"))["content"] == "held"
