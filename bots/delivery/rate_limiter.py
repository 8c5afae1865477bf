"""Rate limits for calls to chat platforms. All processes that use the same token share its limits."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from core.domain.errors import SurfaceRateLimited

OVERSLEPT_SECONDS_MAX = 1.0
"""If a wait takes this much longer than planned, the process was paused and may have lost its leases."""
RETRY_AFTER_SECONDS_MAX = 3600.0
"""Upper bound for a platform's Retry-After value, so that a malformed header cannot block the bot for days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A platform's limit on calls: `burst` calls without a pause, then one call every `interval_seconds`.

    `owner` combines the platform and a digest of the token. `name` is the method or channel that the platform counts.
    A proactive limit always applies. Other limits apply only for a while after the platform refuses a call, because
    the platform documents them as a guaranteed minimum and often allows more."""

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
        """The time that the calls of a full burst would take at the regular interval."""
        return self.interval_seconds * (self.burst - 1)


class RateBudget(Protocol):
    """Counts the calls made with a token and decides when the next call may be made. Never raises, never sleeps.

    A budget covers either one process or all processes that share its storage."""

    async def reserve(self, limit: RateLimit, *, wait_seconds_max: float) -> float:
        """Reserves a slot for a call that counts toward the limit. Returns the seconds until that slot.

        Reserves nothing if the result exceeds `wait_seconds_max`."""
        ...

    def is_blocked(self, limit: RateLimit) -> bool:
        """Whether a refusal known to this process still blocks calls that the limit counts."""
        ...

    async def record_refusal(self, limits: Sequence[RateLimit], *, seconds: float) -> None:
        """Records that the platform refused a call (HTTP 429).

        Blocks all calls for `seconds`. Afterwards, calls are spaced by the interval of each limit."""
        ...


OnWait = Callable[[str, str, float], None]
"""Called after each wait with the platform, the name of the first limit in the list, and the seconds waited."""


def rate_limit_owner(platform: str, token: str) -> str:
    """Returns the `owner` value of a RateLimit. It contains a digest of the token, never the token."""
    return f"{platform}:{hashlib.sha256(token.encode()).hexdigest()[:24]}"


PATIENT_SECONDS = RETRY_AFTER_SECONDS_MAX
_waiting_at_most: ContextVar[float | None] = ContextVar("waiting_at_most", default=None)


@contextmanager
def waiting_at_most(seconds: float) -> Generator[None]:
    """Context manager: inside the block, calls to platforms wait at most `seconds` for their turn, if the platform's
    client lets them wait so long. With PATIENT_SECONDS, they keep their place in the line, however long it is. With 0,
    they leave one call of each burst to others."""
    token = _waiting_at_most.set(seconds)
    try:
        yield
    finally:
        _waiting_at_most.reset(token)


class _Line:
    """Calls that wait for one limit, in order of arrival."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.length = 0


class RateLimiter:
    """Delays calls until a RateBudget allows them. `waited` is called after each delay.

    Calls wait in order of arrival for their narrowest limit. Only the first of each such line waits for the next wider
    limit, so the narrow ones (channels) take turns at the wide one (a workspace)."""

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
        self._lines: dict[str, _Line] = {}

    async def admit(self, limits: Sequence[RateLimit], *, wait_seconds_max: float, oversleeps: bool = True) -> None:
        """Waits until the call may be made. Returns immediately if no limit applies. The widest limit comes first in
        `allowances`.

        Raises SurfaceRateLimited if the wait would exceed `wait_seconds_max`, which `waiting_at_most` changes. If
        `oversleeps` is false, also raises SurfaceRateLimited after a wait during which the process was paused, so that
        the caller checks its lease again before it posts."""
        asked = _waiting_at_most.get()
        if asked is not None:
            is_patient = asked >= PATIENT_SECONDS
            wait_seconds_max = asked if is_patient else min(asked, wait_seconds_max)
            if not asked:  # leaves one call of the burst to others
                limits = [replace(one, burst=max(1, one.burst - 1)) for one in limits]
        began = self._clock()
        overslept = await self._pass(limits, began + wait_seconds_max)
        took = self._clock() - began
        if self._waited is not None and overslept is not None:
            first = limits[0]
            self._waited(first.owner.partition(":")[0], first.name, took)
        if not oversleeps and overslept is not None and overslept > OVERSLEPT_SECONDS_MAX:
            raise _patience(0.0)

    async def _pass(self, allowances: Sequence[RateLimit], deadline: float) -> float | None:
        """Waits for each limit, from the narrowest, which is the last, to the widest. Returns by how much a sleep took
        longer than planned, or None if nothing had to wait."""
        if not allowances:
            return None
        narrow = allowances[-1]
        async with self._turn(narrow, deadline) as had_to_wait:
            slept = await self._sleep_until_allowed(narrow, deadline)
            wider = await self._pass(allowances[:-1], deadline)
        known = [one for one in (slept, wider, 0.0 if had_to_wait else None) if one is not None]
        return max(known, default=None)

    @asynccontextmanager
    async def _turn(self, limit: RateLimit, deadline: float) -> AsyncGenerator[bool]:
        """Context manager: inside the block, the call is the first in the limit's line. Yields whether it waited."""
        line = self._lines.setdefault(limit.key, _Line())
        seconds = max(0.0, deadline - self._clock())
        if line.length * limit.interval_seconds > seconds:
            raise _patience(line.length * limit.interval_seconds)
        had_to_wait = line.turn.locked()
        line.length += 1
        try:
            try:
                async with asyncio.timeout(seconds if had_to_wait else None):
                    await line.turn.acquire()
            except TimeoutError:
                raise _patience(line.length * limit.interval_seconds) from None
            try:
                yield had_to_wait
            finally:
                line.turn.release()
        finally:
            line.length -= 1
            if not line.length:
                self._lines.pop(limit.key, None)

    async def _sleep_until_allowed(self, limit: RateLimit, deadline: float) -> float | None:
        overslept: float | None = None
        while True:
            left = max(0.0, deadline - self._clock())
            seconds = await self._budget.reserve(limit, wait_seconds_max=left)
            if seconds <= 0:
                return overslept
            if seconds > left:
                raise _patience(seconds)
            began = self._clock()
            await self._sleep(seconds)
            overslept = max(overslept or 0.0, self._clock() - began - seconds)
            if not self._budget.is_blocked(limit):
                return overslept
            # the platform refused another call during the wait, so the reserved slot is no longer valid

    async def record_refusal(self, limits: Sequence[RateLimit], *, seconds: float) -> None:
        """Records that the platform refused a call and asked to wait for `seconds`, capped at one hour."""
        await self._budget.record_refusal(limits, seconds=min(seconds, RETRY_AFTER_SECONDS_MAX))


def _patience(seconds: float) -> SurfaceRateLimited:
    return SurfaceRateLimited("the budget of calls is used up", retry_after_seconds=seconds)


LEARNT_SECONDS = 60.0
"""How long a limit that is not proactive stays active after a refusal ends."""
LATE_SECONDS = 0.5
"""Refusals that end this soon are ignored, because a shared budget may already have granted a slot after them."""
KEPT_MAX = 2_000


@dataclass(slots=True)
class _Count:
    """The state of one limit in the generic cell rate algorithm (GCRA), in seconds of the budget's clock.

    `full_at` is the theoretical arrival time of the next call. No call is made before `refused_until`. A limit that is
    not proactive applies until `paced_until`."""

    full_at: float = 0.0
    refused_until: float = 0.0
    paced_until: float = 0.0


class MemoryRateBudget:
    """A RateBudget for one process that uses the generic cell rate algorithm (GCRA)."""

    learnt_seconds = LEARNT_SECONDS

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    async def reserve(self, limit: RateLimit, *, wait_seconds_max: float) -> float:
        if not self.applies_now(limit):
            return 0.0
        now, count = self._clock(), self._counts.get(limit.key)
        if count is None:
            self._forget(now)
            count = self._counts[limit.key] = _Count()
        at = max(now, count.refused_until, count.full_at - limit.burst_seconds)
        if at - now <= wait_seconds_max:
            count.full_at = max(count.full_at, at) + limit.interval_seconds
        return at - now

    def applies_now(self, limit: RateLimit) -> bool:
        """Whether the limit applies now."""
        count = self._counts.get(limit.key)
        return limit.is_proactive or (count is not None and self._clock() < count.paced_until)

    def is_blocked(self, limit: RateLimit) -> bool:
        count = self._counts.get(limit.key)
        return count is not None and count.refused_until > self._clock() + LATE_SECONDS

    async def record_refusal(self, limits: Sequence[RateLimit], *, seconds: float) -> None:
        for allowance in limits:
            self.record_limit_refusal(allowance.key, seconds, allowance.burst_seconds)

    def record_limit_refusal(self, key: str, seconds: float, burst_seconds: float) -> None:
        """Records a refusal, which another process may have received. Calls are blocked for `seconds`.

        `burst_seconds` counts the whole burst as used, so only single calls at the interval follow."""
        now = self._clock()
        self._forget(now)
        count = self._counts.setdefault(key, _Count())
        count.refused_until = max(count.refused_until, now + seconds)
        count.paced_until = count.refused_until + self.learnt_seconds
        count.full_at = max(count.full_at, count.refused_until + burst_seconds)

    def _forget(self, now: float) -> None:
        """Drops expired counts if KEPT_MAX counts are stored."""
        if len(self._counts) >= KEPT_MAX:
            self._counts = {
                key: count for key, count in self._counts.items() if max(count.full_at, count.paced_until) > now
            }
