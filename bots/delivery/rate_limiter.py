"""What a chat platform allows one token to call, shared by all processes that have it, and the wait for one's turn."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.domain.errors import SurfaceRateLimited

OVERSLEPT_SECONDS_MAX = 1.0
"""A wait that took so much longer than meant: the process stood still, and another may have taken over what it does."""
RETRY_AFTER_SECONDS_MAX = 3600.0
"""What a platform says beyond this is not believed: one broken header would silence the bot for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A platform's limit on calls: at most `burst` at once, then one every `interval_seconds`.

    `owner` combines the platform and a digest of the token; `name` is the method or channel that the platform counts.
    A limit that is not `is_proactive` applies only after the platform refused a call, and then for a while: for limits
    that the platform documents as a minimum.
    """

    owner: str
    name: str
    interval_seconds: float
    burst: int = 1
    is_proactive: bool = False

    @property
    def key(self) -> str:
        return f"{self.owner}:{self.name}"

    @property
    def burst_seconds(self) -> float:
        """How far a burst runs ahead of the interval."""
        return self.interval_seconds * (self.burst - 1)


class RateBudget(Protocol):
    """Knows of all calls with a token, as far as it reaches. It never raises, and never waits for a turn itself."""

    async def take(self, allowances: Sequence[RateLimit], *, wait_seconds_max: float) -> float:
        """Seconds until a call that all of these count may be made; its place is taken with the answer.

        Where that is more than `wait_seconds_max`, no place is taken.
        """
        ...

    def is_refused(self, allowances: Sequence[RateLimit]) -> bool:
        """Whether the platform takes no call for one of these just now, as far as this process has heard."""
        ...

    async def refuse(self, allowances: Sequence[RateLimit], *, seconds: float) -> None:
        """The platform has refused a call (429): until then nobody makes one, and from then on at the pace."""
        ...


OnWait = Callable[[str, str, float], None]
"""Told of each wait for a turn: the platform, the name of the allowance that comes first, and the seconds."""


def rate_limit_owner(platform: str, token: str) -> str:
    """Whose allowances they are. The token cannot be had from it."""
    return f"{platform}:{hashlib.sha256(token.encode()).hexdigest()[:24]}"


class RateLimiter:
    """Where calls wait for their turn. `waited` is told of each wait."""

    def __init__(
        self,
        budget: RateBudget,
        *,
        waited: OnWait | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._waited = waited
        self._sleep = sleep
        self._clock = clock

    async def admit(
        self,
        allowances: Sequence[RateLimit],
        *,
        wait_seconds_max: float,
        oversleeps: bool = True,
    ) -> None:
        """Returns when it is the call's turn, at once where nothing is to wait for.

        Raises SurfaceRateLimited where that would take longer, and where `oversleeps` is false after a wait through
        which the process stood still: a post must not go out then before the caller has looked whether it is still its
        own.
        """
        seconds = await self._budget.take(allowances, wait_seconds_max=wait_seconds_max)
        if seconds <= 0:
            return
        began, meant = self._clock(), 0.0
        while seconds > 0:
            if meant + seconds > wait_seconds_max:
                raise _patience(seconds)
            await self._sleep(seconds)
            meant += seconds
            if not self._budget.is_refused(allowances):
                break
            # refused while it waited: the place that it had is worth nothing
            seconds = await self._budget.take(allowances, wait_seconds_max=wait_seconds_max - meant)
        took = self._clock() - began
        if self._waited is not None:
            first = allowances[0]
            self._waited(first.owner.partition(":")[0], first.name, took)
        if not oversleeps and took - meant > OVERSLEPT_SECONDS_MAX:
            raise _patience(0.0)

    async def refuse(self, allowances: Sequence[RateLimit], *, seconds: float) -> None:
        """The platform has refused a call that these count."""
        await self._budget.refuse(allowances, seconds=min(seconds, RETRY_AFTER_SECONDS_MAX))


def _patience(seconds: float) -> SurfaceRateLimited:
    return SurfaceRateLimited("the budget of calls is used up", retry_after_seconds=seconds)


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

    async def take(self, allowances: Sequence[RateLimit], *, wait_seconds_max: float) -> float:
        if not self.is_counted(allowances):
            return 0.0
        now = self._clock()
        at = max(self._turn(allowance, now) for allowance in allowances)
        if at - now > wait_seconds_max:
            return at - now
        for allowance in allowances:
            self._count(allowance, at, now)
        return at - now

    def is_counted(self, allowances: Sequence[RateLimit]) -> bool:
        """Whether a call of these may have to wait at all."""
        now = self._clock()
        return any(_is_paced(one, self._counts.get(one.key), now) for one in allowances)

    def is_refused(self, allowances: Sequence[RateLimit]) -> bool:
        soon = self._clock() + LATE_SECONDS
        found = [self._counts.get(allowance.key) for allowance in allowances]
        return any(count is not None and count.refused_until > soon for count in found)

    async def refuse(self, allowances: Sequence[RateLimit], *, seconds: float) -> None:
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

    def _turn(self, allowance: RateLimit, now: float) -> float:
        count = self._counts.get(allowance.key)
        if count is None:
            return now
        at = max(now, count.refused_until)
        return (
            max(at, count.full_at - allowance.burst_seconds)
            if _is_paced(allowance, count, now)
            else at
        )

    def _count(self, allowance: RateLimit, at: float, now: float) -> None:
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


def _is_paced(allowance: RateLimit, count: _Count | None, now: float) -> bool:
    return allowance.is_proactive or (count is not None and now < count.paced_until)
