"""Waiting for one's turn: told, bounded, and not slept through."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from bots.delivery.rate_limiter import (
    KEPT_MAX,
    PATIENT_SECONDS,
    MemoryRateBudget,
    RateLimit,
    RateLimiter,
    waiting_at_most,
)
from core.domain.errors import SurfaceRateLimited

POST = RateLimit(owner="slack:digest", name="post", interval_seconds=10, is_proactive=True)
EDIT = RateLimit(owner="slack:digest", name="edit", interval_seconds=10)


@dataclass
class Day:
    """Time that goes by only where somebody sleeps. `freezes`: so much longer than asked, once."""

    now: float = 0.0
    freezes: float = 0.0
    refuses: Sequence[float] = ()
    budget: MemoryRateBudget = field(init=False)
    slept: list[float] = field(default_factory=list)
    waited: list[tuple[str, str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = MemoryRateBudget(clock=lambda: self.now)

    def limiter(self) -> RateLimiter:
        def waited(platform: str, call: str, seconds: float) -> None:
            self.waited.append((platform, call, seconds))

        return RateLimiter(self.budget, waited=waited, sleep=self.sleep, clock=lambda: self.now)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.refuses:
            first, *self.refuses = self.refuses
            await self.budget.record_refusal([POST], seconds=seconds + first)
        self.now += seconds + self.freezes
        self.freezes = 0.0


async def test_each_waits_for_its_turn_and_no_longer() -> None:
    day = Day()
    limiter = day.limiter()
    for _ in range(3):
        await limiter.admit([POST], wait_seconds_max=100)
    assert day.slept == [10, 10]
    assert day.waited == [("slack", "post", 10.0)] * 2


async def test_a_wait_that_is_too_long_is_the_callers_to_plan() -> None:
    day = Day()
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=0)
    for _ in range(3):
        with pytest.raises(SurfaceRateLimited) as limited:
            await limiter.admit([POST], wait_seconds_max=9)
        assert limited.value.retry_after_seconds == 10
    assert day.slept == []
    await limiter.admit([POST], wait_seconds_max=10)


async def test_what_gives_way_leaves_others_a_call_of_the_burst() -> None:
    limiter, limit = Day().limiter(), replace(POST, burst=3)
    for _ in range(2):
        with waiting_at_most(0):
            await limiter.admit([limit], wait_seconds_max=9)
    with waiting_at_most(0), pytest.raises(SurfaceRateLimited):
        await limiter.admit([limit], wait_seconds_max=9)
    await limiter.admit([limit], wait_seconds_max=0)


@pytest.mark.parametrize(("refused_seconds", "slept"), [(40, [10, 40]), (0.6, [10, 10]), (0.5, [10])])
async def test_who_is_refused_while_waiting_waits_for_another_turn(refused_seconds: float, slept: list[float]) -> None:
    day = Day(refuses=[refused_seconds])
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    await limiter.admit([POST], wait_seconds_max=100)
    assert day.slept == slept


async def test_refused_for_too_long_while_waiting_it_says_so() -> None:
    day = Day(refuses=[400])
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([POST], wait_seconds_max=100)
    assert limited.value.retry_after_seconds == 400


@pytest.mark.parametrize(("oversleeps", "freezes"), [(True, 5), (False, 1), (False, 1.5)])
async def test_a_process_that_stood_still_looks_before_it_posts(freezes: float, *, oversleeps: bool) -> None:
    day = Day(freezes=freezes)
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    if oversleeps or freezes <= 1:
        await limiter.admit([POST], wait_seconds_max=100, oversleeps=oversleeps)
        return
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([POST], wait_seconds_max=100, oversleeps=False)
    assert limited.value.retry_after_seconds == 0


async def test_a_platform_that_says_for_ever_is_not_believed() -> None:
    day = Day()
    limiter = day.limiter()
    await limiter.record_refusal([EDIT], seconds=float("inf"))
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([EDIT], wait_seconds_max=30)
    assert limited.value.retry_after_seconds <= 3600


async def test_counts_that_are_over_are_forgotten() -> None:
    day = Day()
    for number in range(KEPT_MAX + 10):
        day.now += 11
        place = RateLimit(owner="slack:digest", name=f"{number}", interval_seconds=10, is_proactive=True)
        await day.budget.reserve(place, wait_seconds_max=0)
    assert len(day.budget._counts) <= KEPT_MAX


WORKSPACE = RateLimit(owner="slack:digest", name="react", interval_seconds=0.01, is_proactive=True)


def in_channel(name: str) -> RateLimit:
    return RateLimit(owner="slack:digest", name=f"react {name}", interval_seconds=0)


async def admitted(limiter: RateLimiter, channels: Sequence[str]) -> list[str]:
    """The channels of calls that are made at once, in the order in which they may be made."""
    order: list[str] = []

    async def call(channel: str) -> None:
        await limiter.admit([WORKSPACE, in_channel(channel)], wait_seconds_max=30)
        order.append(channel)

    await asyncio.gather(*(call(channel) for channel in channels))
    return order


async def test_a_busy_channel_does_not_hold_up_the_calls_of_others() -> None:
    order = await admitted(RateLimiter(MemoryRateBudget()), ["busy"] * 20 + ["quiet", "other"])
    assert order.index("quiet") < 4
    assert order.index("other") < 4
    assert len(order) == 22


async def test_the_calls_of_a_channel_are_made_in_order_of_arrival() -> None:
    limiter, order = RateLimiter(MemoryRateBudget()), list[int]()

    async def call(number: int) -> None:
        with waiting_at_most(PATIENT_SECONDS):
            await limiter.admit([WORKSPACE, in_channel("busy")], wait_seconds_max=0.05)
        order.append(number)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == [*range(20)], "although the last waits longer than others would"


async def test_who_will_not_wait_in_a_long_line_learns_it_at_once() -> None:
    day, slow = Day(), RateLimit(owner="o", name="n", interval_seconds=10, is_proactive=True)
    stopped = asyncio.Event()
    limiter = RateLimiter(day.budget, sleep=lambda _: stopped.wait(), clock=lambda: day.now)
    with waiting_at_most(PATIENT_SECONDS):
        line = [asyncio.ensure_future(limiter.admit([slow], wait_seconds_max=0)) for _ in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([slow], wait_seconds_max=30)
    assert limited.value.retry_after_seconds >= 80
    with waiting_at_most(2), pytest.raises(SurfaceRateLimited):
        await limiter.admit([WORKSPACE, slow], wait_seconds_max=300)
    stopped.set()
    await asyncio.gather(*line)


async def test_a_call_that_is_cancelled_gives_up_its_place() -> None:
    limiter = RateLimiter(MemoryRateBudget())
    line = [asyncio.ensure_future(limiter.admit([WORKSPACE, in_channel("a")], wait_seconds_max=30)) for _ in range(5)]
    await asyncio.sleep(0)
    for call in line[1:4]:
        call.cancel()
    await asyncio.gather(*line, return_exceptions=True)
    assert not line[0].cancelled()
    assert not line[4].cancelled()
    assert limiter._lines == {}


async def test_a_call_that_may_not_wait_passes_where_nothing_is_limited() -> None:
    limiter = RateLimiter(MemoryRateBudget())
    for _ in range(3):
        await limiter.admit([EDIT, in_channel("any")], wait_seconds_max=0)
