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
REFUSED_SECONDS_MAX = 3600.0
"""What a platform says beyond this is not believed: one broken header would silence the bot for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a platform counts calls against: at most `burst` of them at once, then one each `interval_seconds`.

    `owner` is the platform and the digest of the token; `name` the method or place that is counted. One that is not
    `always_kept` lets everything pass until the platform refuses a call, and holds for a while from then on: for limits
    that the documentation states as a minimum.
    """

    owner: str
    name: str
    interval_seconds: float
    burst: int = 1
    always_kept: bool = False

    @property
    def key(self) -> str:
        return f"{self.owner}:{self.name}"

    @property
    def burst_seconds(self) -> float:
        """How far a burst runs ahead of the interval."""
        return self.interval_seconds * (self.burst - 1)


class RateBudget(Protocol):
    """Knows of all calls with a token, as far as it reaches. It never raises, and never waits for a turn itself."""

    async def take(self, allowances: Sequence[Allowance], *, wait_seconds_max: float) -> float:
        """Seconds until a call that all of these count may be made; its place is taken with the answer.

        Where that is more than `wait_seconds_max`, no place is taken.
        """
        ...

    def is_refused(self, allowances: Sequence[Allowance]) -> bool:
        """Whether the platform takes no call for one of these just now, as far as this process has heard."""
        ...

    async def refuse(self, allowances: Sequence[Allowance], *, seconds: float) -> None:
        """The platform has refused a call (429): until then nobody makes one, and from then on at the pace."""
        ...


Waited = Callable[[str, str, float], None]
"""Told of each wait for a turn: the platform, the name of the allowance that comes first, and the seconds."""


def owner_of(platform: str, token: str) -> str:
    """Whose allowances they are. The token cannot be had from it."""
    return f"{platform}:{hashlib.sha256(token.encode()).hexdigest()[:24]}"


class RateLimiter:
    """Where calls wait for their turn. `waited` is told of each wait."""

    def __init__(
        self,
        budget: RateBudget,
        *,
        waited: Waited | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget
        self._waited = waited
        self._sleep = sleep
        self._clock = clock

    async def admit(
        self,
        allowances: Sequence[Allowance],
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

    async def refuse(self, allowances: Sequence[Allowance], *, seconds: float) -> None:
        """The platform has refused a call that these count."""
        await self._budget.refuse(allowances, seconds=min(seconds, REFUSED_SECONDS_MAX))


def _patience(seconds: float) -> SurfaceRateLimited:
    return SurfaceRateLimited("the budget of calls is used up", retry_after_seconds=seconds)
