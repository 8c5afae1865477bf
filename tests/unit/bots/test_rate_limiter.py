"""Waiting for one's turn: told, bounded, and not slept through."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bots.delivery.rate_limiter import KEPT_MAX, MemoryRateBudget, RateLimit, RateLimiter
from bots.observability.metrics import Metrics
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
            await self.budget.refuse([POST], seconds=seconds + first)
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


async def test_who_is_refused_while_waiting_waits_for_another_turn() -> None:
    day = Day(refuses=[40])
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    await limiter.admit([POST], wait_seconds_max=100)
    assert day.slept == [10, 40]


async def test_refused_for_too_long_while_waiting_it_says_so() -> None:
    day = Day(refuses=[400])
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([POST], wait_seconds_max=100)
    assert limited.value.retry_after_seconds == 400


@pytest.mark.parametrize("oversleeps", [True, False])
async def test_a_process_that_stood_still_looks_before_it_posts(oversleeps: bool) -> None:
    day = Day(freezes=5)
    limiter = day.limiter()
    await limiter.admit([POST], wait_seconds_max=100)
    if oversleeps:
        await limiter.admit([POST], wait_seconds_max=100, oversleeps=True)
        return
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([POST], wait_seconds_max=100, oversleeps=False)
    assert limited.value.retry_after_seconds == 0


async def test_waits_are_counted_by_what_is_called() -> None:
    metrics, day = Metrics(), Day()
    limiter = RateLimiter(day.budget, waited=metrics.waited, sleep=day.sleep, clock=lambda: day.now)
    await limiter.refuse([EDIT], seconds=7)
    await limiter.admit([EDIT], wait_seconds_max=100)
    labels = {"platform": "slack", "call": "edit"}
    read = metrics.registry.get_sample_value
    assert read("threadhand_rate_wait_seconds_sum", labels) == 7
    assert read("threadhand_rate_wait_seconds_count", labels) == 1


async def test_a_platform_that_says_for_ever_is_not_believed() -> None:
    day = Day()
    limiter = day.limiter()
    await limiter.refuse([EDIT], seconds=float("inf"))
    with pytest.raises(SurfaceRateLimited) as limited:
        await limiter.admit([EDIT], wait_seconds_max=30)
    assert limited.value.retry_after_seconds <= 3600


async def test_counts_that_are_over_are_forgotten() -> None:
    day = Day()
    for number in range(KEPT_MAX + 10):
        day.now += 11
        place = RateLimit(
            owner="slack:digest", name=f"{number}", interval_seconds=10, is_proactive=True
        )
        await day.budget.take([place], wait_seconds_max=0)
    assert len(day.budget._counts) <= KEPT_MAX
