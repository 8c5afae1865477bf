"""The budget of calls of a single process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bots.delivery.rate_limiter import Allowance

LEARNT_SECONDS = 60.0
"""So long after a refusal a pace is kept that is not always kept: then the platform may say again what it allows."""
LATE_SECONDS = 0.5
"""A refusal that is over so soon may be known to be over already where the place was given."""
KEPT_MAX = 2_000


@dataclass(slots=True)
class _Count:
    """GCRA: `full_at` is when the next call would be due if all came at the interval (its theoretical arrival time)."""

    full_at: float = 0.0
    refused_until: float = 0.0
    paced_until: float = 0.0


class MemoryRateBudget:
    """`bots.delivery.rate_limiter.RateBudget`, by the generic cell rate algorithm. Nothing in it ever waits."""

    learnt_seconds = LEARNT_SECONDS

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    async def take(self, allowances: Sequence[Allowance], *, wait_seconds_max: float) -> float:
        if not self.is_counted(allowances):
            return 0.0
        now = self._clock()
        at = max(self._turn(allowance, now) for allowance in allowances)
        if at - now > wait_seconds_max:
            return at - now
        for allowance in allowances:
            self._count(allowance, at, now)
        return at - now

    def is_counted(self, allowances: Sequence[Allowance]) -> bool:
        """Whether a call of these may have to wait at all."""
        now = self._clock()
        return any(_is_paced(one, self._counts.get(one.key), now) for one in allowances)

    def is_refused(self, allowances: Sequence[Allowance]) -> bool:
        soon = self._clock() + LATE_SECONDS
        found = [self._counts.get(allowance.key) for allowance in allowances]
        return any(count is not None and count.refused_until > soon for count in found)

    async def refuse(self, allowances: Sequence[Allowance], *, seconds: float) -> None:
        for allowance in allowances:
            self.note(allowance.key, seconds, allowance.burst_seconds)

    def note(self, key: str, seconds: float, burst_seconds: float) -> None:
        """A refusal of which another process has told; the burst, as long as it would take in turns, is used up."""
        now = self._clock()
        self._forget(now)
        count = self._counts.setdefault(key, _Count())
        count.refused_until = max(count.refused_until, now + seconds)
        count.paced_until = count.refused_until + self.learnt_seconds
        count.full_at = max(count.full_at, count.refused_until + burst_seconds)

    def _turn(self, allowance: Allowance, now: float) -> float:
        count = self._counts.get(allowance.key)
        if count is None:
            return now
        at = max(now, count.refused_until)
        return (
            max(at, count.full_at - allowance.burst_seconds)
            if _is_paced(allowance, count, now)
            else at
        )

    def _count(self, allowance: Allowance, at: float, now: float) -> None:
        count = self._counts.get(allowance.key)
        if not _is_paced(allowance, count, now):
            return
        if count is None:
            self._forget(now)
            count = self._counts[allowance.key] = _Count()
        count.full_at = max(count.full_at, at) + allowance.interval_seconds

    def _forget(self, now: float) -> None:
        """What is over is as good as unknown."""
        if len(self._counts) >= KEPT_MAX:
            self._counts = {
                key: count
                for key, count in self._counts.items()
                if max(count.full_at, count.paced_until) > now
            }


def _is_paced(allowance: Allowance, count: _Count | None, now: float) -> bool:
    return allowance.always_kept or (count is not None and now < count.paced_until)
