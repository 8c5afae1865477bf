"""Two bots with one token at a strict Slack: what the one may call, the other knows."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bots.delivery.rate_limiter import MemoryRateBudget, RateBudget, RateLimiter
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.rate_limits import POST_BURST, rate_limits_for_call
from core.domain.errors import SurfaceRateLimited
from core.domain.json import JsonObject
from simulator.slack import SlackSimulator
from storage.redis.rate_budget import RedisRateBudget
from storage.redis.streams import RedisStreams, create_redis_client
from tests.integration.bots.slack.socket_mode_app import channel_of
from tests.support.waiting import until

POSTS = 8


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
async def speaking(
    slack: SlackSimulator, budget: RateBudget, *, limits_proactively: bool = False
) -> AsyncIterator[SlackClient]:
    client = SlackClient(
        bot_token=slack.settings.bot_token,
        api_url=slack.api_url,
        limiter=RateLimiter(budget),
        limits_proactively=limits_proactively,
    )
    client.open_session()
    try:
        yield client
    finally:
        await client.close()


def refused(slack: SlackSimulator, method: str) -> int:
    return sum(call.method == method and call.status == 429 for call in slack.calls)


def posted(slack: SlackSimulator) -> list[str]:
    return sorted(
        str(call.arguments["text"]) for call in slack.calls if call.method == "chat.postMessage" and call.status == 200
    )


async def post_by_turns(slack: SlackSimulator, one: SlackClient, other: SlackClient, *, posts: int = POSTS) -> None:
    """Everything at once, half of it by each."""
    sent = [
        client.write("chat.postMessage", {"channel": channel_of(slack), "text": f"{number}"})
        for number, client in enumerate([one, other] * (posts // 2))
    ]
    async with asyncio.timeout(100):
        await asyncio.gather(*sent)


async def test_two_bots_that_share_a_budget_are_never_refused(slack: SlackSimulator, redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        clients: list[SlackClient] = []
        for _ in range(2):
            budget = await stack.enter_async_context(in_redis(redis_url))
            client = speaking(slack, budget, limits_proactively=True)
            clients.append(await stack.enter_async_context(client))
        began = time.monotonic()
        await post_by_turns(slack, *clients)
        took = time.monotonic() - began

    assert refused(slack, "chat.postMessage") == 0
    assert posted(slack) == [f"{number}" for number in range(POSTS)]
    assert took >= POSTS - POST_BURST - 0.5


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
    assert posted(slack) == ["answer"]


async def test_a_stand_in_on_this_machine_is_not_paced_ahead(slack: SlackSimulator) -> None:
    waits: list[float] = []
    limiter = RateLimiter(MemoryRateBudget(), waited=lambda _platform, _call, seconds: waits.append(seconds))
    client = SlackClient(bot_token=slack.settings.bot_token, api_url=slack.api_url, limiter=limiter)
    client.open_session()
    post: Callable[[str], JsonObject] = lambda text: {"channel": channel_of(slack), "text": text}  # noqa: E731
    for number in range(POST_BURST + 2):
        await client.write("chat.postMessage", post(f"{number}"))
    await client.close()
    assert not waits
