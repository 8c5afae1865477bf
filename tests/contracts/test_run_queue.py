"""The contracts of `core.ports.RunQueue` and `StopSignals`; other adapters join by a parameter of the fixtures."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from core.ports import RunQueue, StopSignals
from storage.memory.run_queue import MemoryRunQueue, MemoryStopSignals
from storage.redis.run_queue import RedisRunQueue, RedisStopSignals
from tests.contracts.redis_servers import redis_client


@pytest.fixture(params=["memory", "redis"])
async def queue(request: pytest.FixtureRequest) -> AsyncGenerator[RunQueue, None]:
    if request.param == "memory":
        yield MemoryRunQueue()
        return
    async with redis_client(request.getfixturevalue("redis_url")) as (client, _streams):
        yield RedisRunQueue(client)


@pytest.fixture(params=["memory", "redis"])
async def signals(request: pytest.FixtureRequest) -> AsyncGenerator[StopSignals, None]:
    if request.param == "memory":
        yield MemoryStopSignals()
        return
    async with redis_client(request.getfixturevalue("redis_url")) as (client, streams):
        redis_signals = RedisStopSignals(client, streams)
        async with redis_signals.listen():
            yield redis_signals


@pytest.mark.parametrize(("given", "taken"), [("abc", "abc"), ("aaba", "ab")])
async def test_runs_come_out_once_and_in_the_order_they_went_in(queue: RunQueue, given: str, taken: str) -> None:
    for run_id in given:
        await queue.put(run_id)
    async with asyncio.timeout(30):
        assert [await queue.get() for _ in taken] == list(taken)


async def test_a_run_can_be_queued_again_after_its_claim(queue: RunQueue) -> None:
    async with asyncio.timeout(30):
        await queue.put("a")
        assert await queue.get() == "a"
        await queue.put("a")
        assert await queue.get() == "a"


async def test_a_cancelled_claim_takes_nothing_along(queue: RunQueue) -> None:
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await queue.put("a")
    async with asyncio.timeout(30):
        assert await queue.get() == "a"


async def test_a_stop_wakes_everyone_who_waits_for_that_run(signals: StopSignals) -> None:
    one, two, other = (asyncio.ensure_future(signals.wait(run)) for run in ("a", "a", "b"))
    await asyncio.sleep(0)
    await signals.send("a")
    async with asyncio.timeout(30):
        await asyncio.gather(one, two)
    assert not other.done()
    other.cancel()


async def test_a_stop_sent_before_the_wait_is_not_heard(signals: StopSignals) -> None:
    await signals.send("a")
    waiting = asyncio.ensure_future(signals.wait("a"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await signals.send("a")
    await signals.send("a")
    async with asyncio.timeout(30):
        await waiting
