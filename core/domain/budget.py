"""Budgets for model calls: limits per run, person, channel and workspace, and the check against them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from core.domain.threads import Address, Person, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit in US dollars, in tokens, or both. None means no limit. Tokens are input plus output, including cached
    tokens."""

    usd: float | None = None
    tokens: int | None = None


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits per run, and limits per UTC day for a person, a channel and a workspace."""

    run: Limit = NO_LIMIT
    person_day: Limit = NO_LIMIT
    channel_day: Limit = NO_LIMIT
    workspace_day: Limit = NO_LIMIT

    @property
    def is_set(self) -> bool:
        return self != NO_BUDGET

    @property
    def is_in_dollars(self) -> bool:
        """Whether any limit is in US dollars, so that model prices are needed."""
        limits = (self.run, self.person_day, self.channel_day, self.workspace_day)
        return any(limit.usd is not None for limit in limits)


NO_BUDGET = Budget()
_NOTHING = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Usage of one run, and usage today of its requester, its channel and its workspace."""

    run: Usage = _NOTHING
    person_day: Usage = _NOTHING
    channel_day: Usage = _NOTHING
    workspace_day: Usage = _NOTHING


class Ledger(Protocol):
    """Stores the usage of model calls. Its rows remain when their thread is deleted."""

    async def spending(self, run_id: str, *, since: datetime) -> Spending:
        """Returns the usage of the run, and the usage of its requester, channel and workspace since the given time."""
        ...

    async def spending_by(self, by: Person, at: Address, *, since: datetime) -> Spending:
        """Returns the usage of the person, the channel and the workspace since the given time, for work outside
        runs."""
        ...

    async def book(
        self, used: Sequence[tuple[str, Usage]], *, thread_id: str, at: Address, by: Person
    ) -> None:
        """Stores usage outside runs, as pairs of model name and usage. It counts against the daily budgets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price in US dollars per million tokens of uncached input, cached input and output.

    If `is_set` is true, the operator configured the price, and it overrides other estimates.
    """

    input_per_million_usd: float
    cached_per_million_usd: float
    output_per_million_usd: float
    is_set: bool = False


PriceOf = Callable[[str], Price | None]
"""Function that returns a model's price by its name, or None if the price is unknown."""


def price_usage(usage: Usage, price: Price | None) -> Usage:
    """Returns the usage with an estimated cost, if the provider reported no cost and the price is known."""
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
    """Returns the start of the current UTC day."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def exhausted_message(budget: Budget, spending: Spending) -> str | None:
    """Returns a sentence for the people in the thread if a limit is reached, or None."""
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
