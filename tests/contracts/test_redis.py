"""What messaging in Redis does beyond the contracts: frozen servers, listeners that leave, rates and handovers."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, rate_limit_owner
from core.domain.events import RunFinished
from core.domain.threads import Lease
from storage.redis import streams as redis_streams
from storage.redis.event_bus import RedisEventBus
from storage.redis.rate_budget import RedisRateBudget
from storage.redis.run_queue import HANDOVER_SECONDS, RedisHandovers, RedisRunQueue, RedisStopSignals
from storage.redis.streams import Fields, RedisBreaker, RedisStreams, StreamListener, create_redis_client
from tests.contracts.redis_servers import redis_client
from tests.contracts.stores import event
from tests.contracts.test_rate_budget import Clock
from tests.servers import redis, server_folder
from tests.support.waiting import until

LEASE = Lease(thread_id="t", run_id="r", worker_id="w", fence=1, attempt=1)
FINISHED = RunFinished(status="completed", finish_reason="stop")


@pytest.fixture
async def frozen() -> AsyncGenerator[tuple[Redis, int], None]:
    with redis() as url:
        client = create_redis_client(url)
        pid = (await client.info("server"))["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield client, pid
        finally:
            os.kill(pid, signal.SIGCONT)
            await client.aclose()


async def test_only_one_call_waits_for_it(frozen: tuple[Redis, int]) -> None:
    """Each would wait for ten seconds."""
    client, _ = frozen
    breaker = RedisBreaker(clock=Clock())
    streams = RedisStreams(client, breaker)
    bus, signals = (RedisEventBus(client, streams, breaker), RedisStopSignals(client, streams, breaker))
    async with asyncio.timeout(30):
        for n in range(20):
            await bus.publish((event(LEASE, n, FINISHED),))
            await signals.send("r")


async def test_a_run_is_claimed_by_the_process_that_queued_it(frozen: tuple[Redis, int]) -> None:
    queue = RedisRunQueue(frozen[0])
    queueing = queue.put("a")
    with pytest.raises(StopIteration):
        queueing.send(None)  # it ends without waiting
    async with asyncio.timeout(30):
        assert await queue.get() == "a"


async def test_it_is_asked_again_after_a_while(frozen: tuple[Redis, int]) -> None:
    client, pid = frozen
    clock = Clock()
    queue = RedisRunQueue(client, RedisBreaker(clock=clock))
    await queue.put("a")
    async with asyncio.timeout(30):
        assert await queue.get() == "a"
    os.kill(pid, signal.SIGCONT)
    before = int(await client.get("threadhand:runs:count") or 0)
    async with asyncio.timeout(30):
        # a slow machine may make it late once more
        while int(await client.get("threadhand:runs:count") or 0) == before:
            clock.now += redis_streams.AWAY_SECONDS
            await queue.put("b")
            assert await queue.get() in ("a", "b")


@pytest.fixture
async def two(redis_url: str) -> AsyncGenerator[tuple[RedisHandovers, RedisHandovers], None]:
    async with redis_client(redis_url) as (client, _streams):
        yield RedisHandovers(client), RedisHandovers(client)


async def test_one_of_two_processes_hands_a_run_over(two: tuple[RedisHandovers, RedisHandovers]) -> None:
    one, other = two
    assert await one.begin("a")
    assert not await other.begin("a")
    assert not await one.begin("a")
    assert await other.begin("b")


async def test_a_handover_is_over_in_a_minute(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, _streams):
        await RedisHandovers(client).begin("a")
        (key,) = await client.keys("*")
        assert HANDOVER_SECONDS - 30 < await client.ttl(key) <= HANDOVER_SECONDS == 60


async def test_whoever_is_done_with_a_run_may_get_it_again(two: tuple[RedisHandovers, RedisHandovers]) -> None:
    one, other = two
    await one.begin("a")
    await other.end("a")
    assert await one.begin("a")


async def test_without_redis_a_process_goes_by_what_it_did_itself(caplog: pytest.LogCaptureFixture) -> None:
    client = create_redis_client("unix:///no/such/socket")
    alone = RedisHandovers(client)
    assert await alone.begin("a")
    assert not await alone.begin("a")
    await alone.end("a")
    assert await alone.begin("a")
    assert "in a minute" in caplog.text
    await client.aclose()


async def listen(streams: RedisStreams, stream: str, heard: list[Fields]) -> None:
    async with streams.listen(stream, StreamListener(heard.append, lambda: None)):
        await asyncio.Event().wait()


async def blocked_clients(client: Redis) -> int:
    return int((await client.info("clients"))["blocked_clients"])


async def test_who_leaves_while_it_begins_to_listen_hears_nothing_any_more(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        kept: list[Fields] = []
        lost: list[Fields] = []
        async with streams.listen("kept", StreamListener(kept.append, lambda: None)):
            async with asyncio.timeout(30):
                while await blocked_clients(client) < 1:
                    await asyncio.sleep(0.01)
            await client.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
            beginning = asyncio.ensure_future(listen(streams, "lost", lost))
            async with asyncio.timeout(30):
                while await blocked_clients(client) < 2:
                    await asyncio.sleep(0.01)
            beginning.cancel()
            with suppress(asyncio.CancelledError):
                await beginning
            await client.execute_command("CLIENT", "UNPAUSE")
            await client.xadd("kept", {"n": "1"})
            await until(lambda: bool(kept))  # the reader has begun anew since
            await client.xadd("lost", {"n": "2"})
            await client.xadd("kept", {"n": "3"})
            await until(lambda: len(kept) == 2)
        assert lost == []


async def test_an_error_of_a_listener_does_not_end_the_reading_for_all(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        heard: list[Fields] = []
        gaps: list[None] = []

        def on_entry(fields: Fields) -> None:
            heard.append(fields)
            if len(heard) == 1:
                raise LookupError("an entry that the listener does not expect")

        async with streams.listen("stream", StreamListener(on_entry, lambda: gaps.append(None))):
            await client.xadd("stream", {"n": "1"})
            await until(lambda: len(heard) == 1)
            await client.xadd("stream", {"n": "2"})
            await until(lambda: len(heard) == 2 and len(gaps) == 1)


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
