"""What model calls may cost: limits per run, person, channel and workspace, and whether they hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from core.domain.threads import Address, Person, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """None: no limit. Tokens count in and out, cached ones too."""

    usd: float | None = None
    tokens: int | None = None


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The days are those of UTC."""

    run: Limit = NO_LIMIT
    person_day: Limit = NO_LIMIT
    channel_day: Limit = NO_LIMIT
    workspace_day: Limit = NO_LIMIT

    @property
    def is_set(self) -> bool:
        return self != NO_BUDGET

    @property
    def is_in_dollars(self) -> bool:
        """Whether any of the limits counts dollars, which needs to know what models cost."""
        limits = (self.run, self.person_day, self.channel_day, self.workspace_day)
        return any(limit.usd is not None for limit in limits)


NO_BUDGET = Budget()
_NOTHING = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was used: by one run, and since the day began by its requester, in its channel, in its workspace."""

    run: Usage = _NOTHING
    person_day: Usage = _NOTHING
    channel_day: Usage = _NOTHING
    workspace_day: Usage = _NOTHING


class Ledger(Protocol):
    """What model calls have cost. Rows outlive the thread that they were made for."""

    async def spending(self, run_id: str, *, since: datetime) -> Spending:
        """What the run has used, and what its requester, channel and workspace have used since then."""
        ...

    async def spending_by(self, by: Person, at: Address, *, since: datetime) -> Spending:
        """What the person, the channel and the workspace have used since then, for something beside any run."""
        ...

    async def book(
        self, used: Sequence[tuple[str, Usage]], *, thread_id: str, at: Address, by: Person
    ) -> None:
        """What models were used for beside any run: their names, and how much. Counts for the days of its budgets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens: read anew, read from the provider's cache, written.

    One that `is_set` by the operator goes before other estimates.
    """

    input_per_million_usd: float
    cached_per_million_usd: float
    output_per_million_usd: float
    is_set: bool = False


PriceOf = Callable[[str], Price | None]
"""The price of a model by its name; None: it is not known."""


def price_usage(usage: Usage, price: Price | None) -> Usage:
    """With a cost, marked as an estimate, where the provider told none and the price is known."""
    told = usage.cost_usd - usage.estimated_usd
    if price is None or told > 0 or (usage.cost_usd and not price.is_set):
        return usage
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    millionths = (
        fresh * price.input_per_million_usd
        + usage.cached_tokens * price.cached_per_million_usd
        + usage.output_tokens * price.output_per_million_usd
    )
    return replace(usage, cost_usd=millionths / 1e6, estimated_usd=millionths / 1e6)


def utc_day_start(now: datetime) -> datetime:
    """Midnight in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def exhausted_message(budget: Budget, spending: Spending) -> str | None:
    """A sentence with the figures for the people in the thread, once a limit is reached."""
    places = (
        (budget.run, spending.run, "This run has used up its budget", ""),
        (budget.person_day, spending.person_day, "Your budget for today is used up", _ANEW),
        (
            budget.channel_day,
            spending.channel_day,
            "Today's budget of this channel is used up",
            _ANEW,
        ),
        (
            budget.workspace_day,
            spending.workspace_day,
            "Today's budget of this workspace is used up",
            _ANEW,
        ),
    )
    for limit, used, words, anew in places:
        if (figures := _figures(limit, used)) is not None:
            return f"{words}: {figures}.{anew}"
    return None


_ANEW = " It starts anew at 00:00 UTC."


def _figures(limit: Limit, used: Usage) -> str | None:
    if limit.usd is not None and used.cost_usd >= limit.usd:
        return f"{_dollars(used.cost_usd)} of {_dollars(limit.usd)} US dollars"
    tokens = used.input_tokens + used.output_tokens
    if limit.tokens is not None and tokens >= limit.tokens:
        return f"{tokens:,} of {limit.tokens:,} tokens"
    return None


def _dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else f"{amount:.3g}"
