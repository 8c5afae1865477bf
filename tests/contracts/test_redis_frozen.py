"""A Redis that is frozen (its machine is paused, packets are dropped) holds up neither messages nor runs."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest
from redis.asyncio import Redis

from core.domain.events import RunFinished
from core.domain.threads import Lease
from storage.redis import streams as redis_streams
from storage.redis.event_bus import RedisEventBus
from storage.redis.run_queue import RedisRunQueue, RedisStopSignals
from storage.redis.streams import RedisBreaker, RedisStreams, create_redis_client
from tests.contracts.stores import event
from tests.contracts.test_rate_budget import Clock
from tests.servers import redis

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
    before = await accepted(client)
    async with asyncio.timeout(30):
        # a slow machine may make it late once more
        while await accepted(client) == before:
            clock.now += redis_streams.AWAY_SECONDS
            await queue.put("b")
            assert await queue.get() in ("a", "b")


async def accepted(client: Redis) -> int:
    """The number of runs that Redis has put into the queue."""
    return int(await client.get("threadhand:runs:count") or 0)
