"""Budgets for model calls: limits per run, person, channel and workspace, and the check against them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Literal, Protocol

from core.domain.threads import Address, Person, Usage

BudgetScope = Literal["run", "person", "app", "channel", "workspace"]
UNPRICED_PER_MILLION_USD = 2.0
"""What a million tokens of a model without a known price count against a limit in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit in US dollars, in tokens, or both. None means no limit. Tokens are counted as `Usage.budget_tokens`."""

    usd: float | None = None
    tokens: int | None = None

    def __str__(self) -> str:
        parts = [f"{format_dollars(self.usd)} US dollars"] if self.usd is not None else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens is not None else []
        return " or ".join(parts) or "no limit"


NO_LIMIT = Limit()
Limits = Mapping[BudgetScope, Limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits for one run, and limits for a UTC day of a person, an app, a channel and a workspace.

    Set `counts_unpriced` to False if calls without a cost are free. `has_admins` says whether the bot has admins, who
    can change the limits in chat."""

    run: Limit = NO_LIMIT
    person: Limit = NO_LIMIT
    app: Limit = NO_LIMIT
    channel: Limit = NO_LIMIT
    workspace: Limit = NO_LIMIT
    counts_unpriced: bool = True
    has_admins: bool = False

    @property
    def limits(self) -> dict[BudgetScope, Limit]:
        return {
            "run": self.run,
            "person": self.person,
            **({"app": self.app} if self.app != NO_LIMIT else {}),
            "channel": self.channel,
            "workspace": self.workspace,
        }

    def __str__(self) -> str:
        return "; ".join(f"{SCOPE_WORDS[scope]} {limit}" for scope, limit in self.limits.items())


NO_BUDGET = Budget()
SCOPE_WORDS: Mapping[BudgetScope, str] = {
    "run": "a run",
    "person": "a person and day",
    "app": "an app and day",
    "channel": "a channel and day",
    "workspace": "the workspace and day",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What model calls have cost. `unpriced_tokens` are the tokens of calls whose cost is unknown."""

    cost_usd: float = 0.0
    tokens: int = 0
    unpriced_tokens: int = 0

    def plus(self, usage: Usage) -> "Spent":
        tokens = usage.budget_tokens
        return Spent(
            cost_usd=self.cost_usd + usage.cost_usd,
            tokens=self.tokens + tokens,
            unpriced_tokens=self.unpriced_tokens + (0 if usage.cost_usd else tokens),
        )

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            cost_usd=self.cost_usd + other.cost_usd,
            tokens=self.tokens + other.tokens,
            unpriced_tokens=self.unpriced_tokens + other.unpriced_tokens,
        )


_NOTHING = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What one run has cost, and what its requester, its channel and its workspace have cost today. The requester is a
    person or an app, so one of the two is zero. `changed_limits` are the limits that admins of the workspace have
    changed."""

    run: Spent = _NOTHING
    person: Spent = _NOTHING
    app: Spent = _NOTHING
    channel: Spent = _NOTHING
    workspace: Spent = _NOTHING
    changed_limits: Limits = field(default_factory=dict[BudgetScope, Limit])

    def plus_reserved(self, others: "Spending") -> "Spending":
        """Returns the spending, as if the calls of other runs had cost what is reserved for them."""
        return replace(
            self,
            person=self.person + others.person,
            app=self.app + others.app,
            channel=self.channel + others.channel,
            workspace=self.workspace + others.workspace,
        )


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A model call that a run is about to make: its maximum cost, the limits that must allow it, and the UTC day from
    which spending counts against daily limits."""

    most: Spent
    budget: Budget
    since: date


@dataclass(frozen=True, slots=True)
class Reservation:
    """The answer to a reservation. If `is_granted` is true, the model call may begin and its maximum cost is reserved.
    If it is false, a limit is reached, or would be reached by the calls that other runs are making now. If there are no
    limits, nothing is summed up or reserved."""

    spending: Spending
    is_granted: bool


class Ledger(Protocol):
    """Stores the usage of model calls. Its rows remain when their thread is deleted."""

    async def reserve(self, run_id: str, call: PlannedCall) -> Reservation:
        """Reserves what the run's next model call may cost, unless a limit forbids it. The reservation ends when the
        call's usage is stored, or with the run."""
        ...

    async def spending_by(self, by: Person, at: Address, *, since: date) -> Spending:
        """Returns what the person, the channel and the workspace have spent since the given UTC day, in runs and
        outside them. For checks that belong to no run."""
        ...

    async def book_usage(
        self, used: Sequence[tuple[str, Usage]], *, thread_id: str | None, at: Address, by: Person
    ) -> None:
        """Stores usage outside runs, as pairs of model name and usage. It counts against the daily budgets."""
        ...

    async def change_limit(self, scope: BudgetScope, limit: Limit | None, *, at: Address, by: Person) -> None:
        """Changes a limit for the workspace and records who did. None restores the configured limit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price in US dollars per million tokens of uncached input, cached input, input that is written to the cache (None:
    as other input) and output. For prompts of more than `long_from_tokens` tokens, the price is `long`.

    If `is_set` is true, the operator configured the price, and it overrides other estimates.
    """

    input_per_million_usd: float
    cached_per_million_usd: float
    output_per_million_usd: float
    written_per_million_usd: float | None = None
    long_from_tokens: int = 0
    long: "Price | None" = None
    is_set: bool = False


PriceOf = Callable[[str], Price | None]
"""Function that returns a model's price by its name, or None if the price is unknown."""


def price_usage(usage: Usage, price: Price | None) -> Usage:
    """Returns the usage with an estimated cost, if the provider reported no cost and the price is known."""
    told = usage.cost_usd - usage.estimated_usd
    if price is None or told > 0 or (usage.cost_usd and not price.is_set):
        return usage
    if price.long is not None and usage.input_tokens > price.long_from_tokens:
        price = price.long
    fresh = max(0, usage.input_tokens - usage.cached_tokens - usage.written_tokens)
    written_usd = price.written_per_million_usd
    millionths = (
        fresh * price.input_per_million_usd
        + usage.written_tokens * (price.input_per_million_usd if written_usd is None else written_usd)
        + usage.cached_tokens * price.cached_per_million_usd
        + usage.output_tokens * price.output_per_million_usd
    )
    return replace(usage, cost_usd=millionths / 1e6, estimated_usd=millionths / 1e6)


def utc_day(now: datetime) -> date:
    return now.astimezone(UTC).date()


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A limit that is reached, with a sentence for the users in the thread: which one, and who can raise it."""

    scope: BudgetScope
    sentence: str


def has_limits(budget: Budget, changed: Limits) -> bool:
    """Returns whether the settings, with the changes of the workspace's admins, set any limit."""
    return any(limit != NO_LIMIT for limit in {**budget.limits, **changed}.values())


def find_exhausted(budget: Budget, spending: Spending, *, is_chat: bool = True) -> Exhausted | None:
    """Returns the first limit that is reached, or None. Set `is_chat` to False if chat commands cannot be sent."""
    used: Mapping[BudgetScope, Spent] = {
        "run": spending.run,
        "person": spending.person,
        "app": spending.app,
        "channel": spending.channel,
        "workspace": spending.workspace,
    }
    limits: Limits = {**budget.limits, **spending.changed_limits}
    for scope, limit in limits.items():
        spent = used[scope]
        unpriced = spent.unpriced_tokens if budget.counts_unpriced else 0
        cost = spent.cost_usd + unpriced * UNPRICED_PER_MILLION_USD / 1e6
        if limit.tokens is not None and spent.tokens >= limit.tokens:
            figures = f"{spent.tokens:,} of {limit.tokens:,} tokens"
        elif limit.usd is not None and cost >= limit.usd:
            figures = f"{format_dollars(cost)} of {format_dollars(limit.usd)} US dollars"
            if unpriced:
                figures += f" (a million tokens of unknown price count {UNPRICED_PER_MILLION_USD:g} dollars)"
        else:
            continue
        if budget.has_admins and is_chat:
            more = f"{2 * limit.usd:g}" if limit.usd else f"{2 * (limit.tokens or 1)} tokens"
            remedy = f"An admin of this bot can raise it with `budget {scope} {more}`."
        else:
            name = "USER_DAY" if scope == "person" else scope.upper() + "_DAY" * (scope != "run")
            remedy = (
                "Whoever runs this bot can raise it with the setting"
                f" `THREADHAND_BUDGET_{name}_{'USD' if limit.usd is not None else 'TOKENS'}`, "
                "or name admins in `THREADHAND_ADMINS`, who can change it in chat."
            )
        renewal = "Continue starts a run with a new one." if scope == "run" else "A new one starts at 00:00 UTC."
        return Exhausted(scope, f"{_EXHAUSTED[scope]}: {figures}. {renewal} {remedy}")
    return None


_EXHAUSTED: Mapping[BudgetScope, str] = {
    "run": "This run has used up its budget",
    "person": "Your budget for today is used up",
    "app": "Today's budget of the app that asked is used up",
    "channel": "Today's budget of this channel is used up",
    "workspace": "Today's budget of this workspace is used up",
}


def format_dollars(amount: float) -> str:
    """Returns an amount with two decimals, or with three significant digits below 1."""
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else f"{amount:.3g}"


_AMOUNT_MAX = 1_000_000_000_000


def is_limit_text(text: str) -> bool:
    """Returns whether `parse_limit` accepts the text."""
    try:
        parse_limit(text)
    except ValueError:
        return False
    return True


def parse_limit(text: str) -> Limit | None:
    """Parses the limit of a chat command; returns None for `default`. Raises ValueError if it is not a limit."""
    word, _, unit = text.strip().lower().replace(",", "").partition(" ")
    if word == "default":
        return None
    if word in ("none", "0"):
        return NO_LIMIT
    amount = float(word.removeprefix("$"))
    if not 0 < amount <= _AMOUNT_MAX:
        raise ValueError(text)
    match unit.strip():
        case "token" | "tokens":
            return Limit(tokens=math.ceil(amount))
        case "" | "dollar" | "dollars" | "usd" | "us dollars":
            return Limit(usd=amount)
        case _:
            raise ValueError(text)
