"""Two bots with one token at a strict Slack: what the one may call, the other knows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bots.delivery.rate_limiter import MemoryRateBudget, RateBudget, RateLimiter
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.rate_limits import rate_limits_for_call
from core.domain.errors import SurfaceRateLimited
from core.domain.json import JsonObject
from simulator.slack import SlackSimulator
from storage.redis.rate_budget import RedisRateBudget
from storage.redis.streams import RedisStreams, create_redis_client
from tests.integration.bots.slack.socket_mode_app import channel_of
from tests.support.waiting import until


@asynccontextmanager
async def in_redis(url: str) -> AsyncIterator[RedisRateBudget]:
    """The budget as a process of its own has it."""
    client = create_redis_client(url)
    streams = RedisStreams(client)
    budget = RedisRateBudget(client, streams, MemoryRateBudget())
    try:
        async with budget.listen():
            yield budget
    finally:
        await streams.close()
        await client.aclose()


@asynccontextmanager
async def speaking(slack: SlackSimulator, budget: RateBudget) -> AsyncIterator[SlackClient]:
    client = SlackClient(
        bot_token=slack.settings.bot_token, api_url=slack.api_url, limiter=RateLimiter(budget), limits_proactively=False
    )
    client.open_session()
    try:
        yield client
    finally:
        await client.close()


async def test_what_one_bot_is_refused_the_other_does_not_try(slack: SlackSimulator, redis_url: str) -> None:
    edit: JsonObject = {"channel": channel_of(slack), "ts": "1.000001", "text": "news"}
    counted, _ = rate_limits_for_call(slack.settings.bot_token, "chat.update", channel_of(slack))
    async with (
        in_redis(redis_url) as first,
        in_redis(redis_url) as second,
        speaking(slack, first) as one,
        speaking(slack, second) as other,
    ):
        slack.misbehave("rate_limit", method="chat.update", seconds=70)
        with pytest.raises(SurfaceRateLimited) as here:
            await one.write("chat.update", edit)
        await until(lambda: second.is_blocked(counted))
        with pytest.raises(SurfaceRateLimited) as there:
            await other.write("chat.update", edit)
        # an answer is not an edit, and waits for none
        await other.write("chat.postMessage", {"channel": channel_of(slack), "text": "answer"})

    assert here.value.retry_after_seconds == 70
    assert 10 < there.value.retry_after_seconds <= 70
    assert sum(call.method == "chat.update" for call in slack.calls) == 1
    assert [call.status for call in slack.calls if call.method == "chat.postMessage"] == [200]
