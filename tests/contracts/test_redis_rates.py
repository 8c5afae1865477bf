"""What the budget in Redis does beyond the contract: it leaves nothing behind, and nothing hangs on its server."""

import logging

import pytest

from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, rate_limit_owner
from storage.redis import streams as redis_streams
from storage.redis.rate_budget import RedisRateBudget
from storage.redis.streams import RedisBreaker, RedisStreams, create_redis_client
from tests.contracts.redis_servers import redis_client
from tests.contracts.test_rate_budget import Clock
from tests.servers import redis, server_folder
from tests.support.waiting import until

TOKEN = "xoxb-of-this-test"
KEPT = RateLimit(owner=rate_limit_owner("slack", TOKEN), name="post", interval_seconds=100, burst=1, is_proactive=True)
LEARNT = RateLimit(owner=rate_limit_owner("slack", TOKEN), name="edit", interval_seconds=100)


async def reserve(budget: RedisRateBudget, allowance: RateLimit) -> float:
    return round(await budget.reserve(allowance, wait_seconds_max=1_000), -1)


async def test_what_is_over_is_forgotten_by_itself_and_no_token_is_in_it(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        budget = RedisRateBudget(client, streams, MemoryRateBudget())
        await reserve(budget, KEPT)
        await budget.record_refusal([LEARNT], seconds=30)
        keys = [key async for key in client.scan_iter("*")]
        assert len(keys) == 3
        for key in keys:
            assert 0 < await client.ttl(key) <= 600, key
            assert TOKEN.encode() not in key


async def test_an_entry_that_cannot_be_read_is_passed_over(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        own = MemoryRateBudget()
        budget = RedisRateBudget(client, streams, own)
        async with budget.listen():
            for bad in ("", "[1]", "{}", '[["key", "soon", 0]]', "[[]]"):
                await client.xadd("threadhand:refusals", {"refusal": bad})
            await client.xadd("threadhand:refusals", {"other": "1"})
            await client.xadd("threadhand:refusals", {"refusal": f'[["{LEARNT.key}", 30, 0]]'})
            await until(lambda: budget.is_blocked(LEARNT))


async def test_without_redis_a_process_goes_by_what_it_knows_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with server_folder("thredis-") as folder:
        with redis(folder) as url:
            client = create_redis_client(url)
            breaker = RedisBreaker(clock=clock)
            own = MemoryRateBudget(clock=clock)
            budget = RedisRateBudget(client, RedisStreams(client), own, breaker)
            assert await reserve(budget, KEPT) == 0
        with caplog.at_level(logging.WARNING, redis_streams.__name__):
            assert [await reserve(budget, KEPT) for _ in range(3)] == [0, 100, 200]
            await budget.record_refusal([LEARNT], seconds=30)
            clock.now += 2 * redis_streams.AWAY_SECONDS
            assert await reserve(budget, KEPT) == 290
            assert budget.is_blocked(LEARNT)
        assert len(caplog.records) == 1, caplog.text
        assert "redis does not take a call" in caplog.text
        caplog.clear()
        with redis(folder), caplog.at_level(logging.WARNING, redis_streams.__name__):
            clock.now += redis_streams.AWAY_SECONDS
            assert [await reserve(budget, KEPT) for _ in range(2)] == [0, 100]
            await client.aclose()
        assert [one.getMessage() for one in caplog.records] == ["redis answers again"]
