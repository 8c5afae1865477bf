"""The contract of `core.ports.EventBus`; another bus joins by a parameter of the fixture."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from core.domain.events import Cursor, RunEvent, TextStreamed
from core.ports import EventBus
from storage.memory.event_bus import MemoryEventBus
from storage.redis.event_bus import RedisEventBus
from tests.contracts.redis_servers import redis_client

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "redis"])
async def bus(request: pytest.FixtureRequest) -> AsyncGenerator[EventBus, None]:
    if request.param == "memory":
        yield MemoryEventBus(lag_max=50)
        return
    async with redis_client(request.getfixturevalue("redis_url")) as (client, streams):
        yield RedisEventBus(client, streams, lag_max=50)


def chunk(run_id: str, n: int) -> RunEvent:
    return RunEvent(
        run_id=run_id, thread_id="t", cursor=Cursor(1, n), event=TextStreamed(text=str(n), sequence=n), created_at=NOON
    )


async def test_a_subscriber_gets_what_is_published_in_order(bus: EventBus) -> None:
    events = [chunk("r", n) for n in range(20)]
    async with bus.subscribe("r") as live:
        await bus.publish(events[:5])
        await bus.publish(events[5:])
        async with asyncio.timeout(30):
            got = [await anext(live) for _ in events]
    assert got == events


async def test_events_of_other_runs_are_not_heard(bus: EventBus) -> None:
    async with bus.subscribe("r") as live:
        await bus.publish([chunk("other", 1), chunk("r", 2)])
        async with asyncio.timeout(30):
            assert await anext(live) == chunk("r", 2)


async def test_nothing_that_was_published_before_is_heard(bus: EventBus) -> None:
    await bus.publish([chunk("r", 1)])
    async with bus.subscribe("r") as live:
        await bus.publish([chunk("r", 2)])
        async with asyncio.timeout(30):
            assert await anext(live) == chunk("r", 2)


async def test_a_reader_that_falls_behind_is_ended_and_the_others_are_not(bus: EventBus) -> None:
    async with bus.subscribe("r") as slow, bus.subscribe("r") as fast:
        heard: list[RunEvent] = []
        for n in range(200):
            await bus.publish([chunk("r", n)])
            async with asyncio.timeout(30):
                heard.append(await anext(fast))
        async with asyncio.timeout(30):
            late = [event async for event in slow]
    assert len(heard) == 200
    assert len(late) < 200
    assert late == heard[: len(late)]
