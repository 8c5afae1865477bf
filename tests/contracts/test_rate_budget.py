"""The contract of `bots.delivery.rate_limiter.RateBudget`; other adapters join by a parameter of the fixture."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest
from redis.asyncio import Redis

from bots.delivery.rate_limiter import MemoryRateBudget, RateBudget, RateLimit, rate_limit_owner
from storage.redis.rate_budget import RedisRateBudget
from storage.redis.streams import RedisStreams, create_redis_client
from tests.contracts.redis_servers import redis_client
from tests.support.waiting import until

# so slow that what a test itself takes does not matter
KEPT = RateLimit(owner="slack:digest", name="post", interval_seconds=100, burst=3, is_proactive=True)
LEARNT = RateLimit(owner="slack:digest", name="edit", interval_seconds=100)
LONG = 10_000


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Stage:
    """Two processes with one token. `pass_time` lets so many seconds go by for both."""

    here: RateBudget
    there: RateBudget
    pass_time: Callable[[float], Awaitable[None]]
    waits: list[float] = field(default_factory=list)

    async def reserve(self, limit: RateLimit, *, at_most: float = LONG) -> float:
        """Rounded to ten seconds."""
        return round(await self.here.reserve(limit, wait_seconds_max=at_most), -1)

    async def reserve_there(self, limit: RateLimit) -> float:
        return round(await self.there.reserve(limit, wait_seconds_max=LONG), -1)


async def age(client: Redis, seconds: float) -> None:
    """Puts everything that is counted so far into the past."""
    async for key in client.scan_iter("threadhand:rate:*"):
        for name in await client.hkeys(key):  # pyright: ignore[reportGeneralTypeIssues] - typed as both kinds
            moved = client.hincrbyfloat(key, name.decode(), -seconds * 1000)
            await moved  # pyright: ignore[reportGeneralTypeIssues] - likewise


@pytest.fixture(params=["memory", "redis"])
async def stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage, None]:
    clock = Clock()
    if request.param == "memory":
        budget = MemoryRateBudget(clock=clock)

        async def advance(seconds: float) -> None:
            clock.now += seconds

        yield Stage(budget, budget, advance)
        return
    async with AsyncExitStack() as stack:
        url = request.getfixturevalue("redis_url")
        client, streams = await stack.enter_async_context(redis_client(url))
        other = create_redis_client(url)
        stack.push_async_callback(other.aclose)
        other_streams = RedisStreams(other)
        stack.push_async_callback(other_streams.close)
        here = RedisRateBudget(client, streams, MemoryRateBudget(clock=clock))
        there = RedisRateBudget(other, other_streams, MemoryRateBudget(clock=clock))
        for budget in (here, there):
            await stack.enter_async_context(budget.listen())

        async def advance_both(seconds: float) -> None:
            clock.now += seconds
            await age(client, seconds)

        yield Stage(here, there, advance_both)


async def heard(stage: Stage, allowance: RateLimit) -> None:
    await until(lambda: stage.there.is_blocked(allowance))


async def test_after_a_burst_each_call_has_a_place_of_its_own(stage: Stage) -> None:
    assert [await stage.reserve(KEPT) for _ in range(6)] == [0, 0, 0, 100, 200, 300]


async def test_two_processes_draw_from_one_budget(stage: Stage) -> None:
    first = [await stage.reserve(KEPT), await stage.reserve_there(KEPT)]
    assert first == [0, 0]
    assert [await stage.reserve_there(KEPT), await stage.reserve(KEPT)] == [0, 100]
    assert await stage.reserve_there(KEPT) == 200


async def test_time_gives_places_back_up_to_the_burst(stage: Stage) -> None:
    for _ in range(4):
        await stage.reserve(KEPT)
    await stage.pass_time(100)
    assert await stage.reserve(KEPT) == 100
    await stage.pass_time(5_000)
    assert [await stage.reserve(KEPT) for _ in range(4)] == [0, 0, 0, 100]


async def test_who_will_not_wait_so_long_takes_no_place(stage: Stage) -> None:
    for _ in range(3):
        await stage.reserve(KEPT)
    assert [await stage.reserve(KEPT, at_most=50) for _ in range(3)] == [100, 100, 100]
    assert await stage.reserve(KEPT, at_most=150) == 100
    assert await stage.reserve(KEPT) == 200


async def test_nothing_is_counted_before_the_platform_refuses(stage: Stage) -> None:
    assert [await stage.reserve(LEARNT) for _ in range(20)] == [0] * 20
    assert not stage.here.is_blocked(LEARNT)


async def test_a_refusal_holds_for_everybody_and_then_the_pace(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT], seconds=500)
    await heard(stage, LEARNT)
    assert stage.here.is_blocked(LEARNT)
    assert await stage.reserve_there(LEARNT) == 500
    assert [await stage.reserve(LEARNT), await stage.reserve_there(LEARNT)] == [600, 700]


async def test_a_pace_that_was_learnt_is_given_up_again(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT], seconds=500)
    await heard(stage, LEARNT)
    await stage.pass_time(540)
    assert not stage.there.is_blocked(LEARNT)
    assert [await stage.reserve(LEARNT), await stage.reserve_there(LEARNT)] == [0, 100]
    await stage.pass_time(50)
    assert [await stage.reserve(LEARNT), await stage.reserve_there(LEARNT)] == [0, 0]


async def test_a_refusal_uses_up_the_burst(stage: Stage) -> None:
    await stage.here.record_refusal([KEPT], seconds=500)
    assert [await stage.reserve(KEPT), await stage.reserve_there(KEPT)] == [500, 600]


async def test_a_shorter_refusal_does_not_end_a_longer_one(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT], seconds=500)
    await stage.here.record_refusal([LEARNT], seconds=10)
    assert await stage.reserve(LEARNT) == 500


async def test_one_method_and_one_token_says_nothing_of_another(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT], seconds=500)
    await heard(stage, LEARNT)
    for other in (replace(LEARNT, name="read"), replace(LEARNT, owner="slack:another"), KEPT):
        assert await stage.reserve(other) == 0, other
        assert await stage.reserve_there(other) == 0, other


async def test_a_refusal_that_two_limits_count_holds_for_both(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT, KEPT], seconds=500)
    await heard(stage, LEARNT)
    await heard(stage, KEPT)
    assert [await stage.reserve(LEARNT), await stage.reserve_there(KEPT)] == [500, 500]


async def test_a_token_cannot_be_had_from_its_owner() -> None:
    assert rate_limit_owner("slack", "xoxb-1") != rate_limit_owner("slack", "xoxb-2")
    assert rate_limit_owner("slack", "xoxb-1") == rate_limit_owner("slack", "xoxb-1")
    assert "xoxb-1" not in rate_limit_owner("slack", "xoxb-1")


async def test_what_passes_without_a_pace_is_not_held_against_later_calls(stage: Stage) -> None:
    await stage.here.record_refusal([LEARNT], seconds=10)
    await heard(stage, LEARNT)
    await stage.pass_time(200)
    for _ in range(20):
        assert await stage.reserve(LEARNT) == 0
    await stage.here.record_refusal([LEARNT], seconds=50)
    assert await stage.reserve(LEARNT) == 50
