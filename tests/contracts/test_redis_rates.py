"""What the budget in Redis does beyond the contract: it leaves nothing behind, and nothing hangs on its server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

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


async def commands(client: Redis) -> int:
    return (await client.info("stats"))["total_commands_processed"]


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


async def test_a_call_that_nobody_limits_costs_no_round_trip(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        clock = Clock()
        budget = RedisRateBudget(client, streams, MemoryRateBudget(clock=clock))
        before = await commands(client)
        for _ in range(100):
            assert await reserve(budget, LEARNT) == 0
        assert await commands(client) == before + 1
        await budget.record_refusal([LEARNT], seconds=30)
        assert await reserve(budget, LEARNT) == 30
        clock.now += 100
        before = await commands(client)
        assert await reserve(budget, LEARNT) == 0
        assert await commands(client) == before + 1


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


async def test_a_redis_that_says_nothing_holds_up_one_call_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_streams, "ANSWER_SECONDS_MAX", 0.05)
    met: list[asyncio.StreamWriter] = []

    async def mute(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(writer)

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = create_redis_client(f"redis://127.0.0.1:{port}")
    budget = RedisRateBudget(client, RedisStreams(client), MemoryRateBudget(), RedisBreaker(clock=Clock()))
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: reserve(budget, KEPT),
        lambda: reserve(budget, KEPT),
        lambda: budget.record_refusal([LEARNT], seconds=30),
    ]
    async with asyncio.timeout(30):
        for call in calls:
            await call()
        while not met:  # on a busy machine the connection may be given up before the server takes it
            await asyncio.sleep(0)
    assert len(met) == 1
    assert budget.is_blocked(LEARNT)
    await client.aclose()
    for writer in met:
        writer.close()
    server.close()
    await server.wait_closed()
