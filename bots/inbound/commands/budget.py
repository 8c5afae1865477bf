"""The chat command `budget`: shows the limits on cost and tokens; admins change them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from bots.inbound.actions import CommandCalled, Outcome
from core.domain.budget import (
    NO_LIMIT,
    SCOPE_WORDS,
    Budget,
    BudgetScope,
    Ledger,
    Limits,
    format_dollars,
    parse_limit,
    utc_day,
)
from core.domain.threads import Address, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDeps:
    """Dependencies of the command. `budget` holds the configured limits."""

    ledger: Ledger
    budget: Budget


async def answer_budget(called: CommandCalled, deps: BudgetDeps) -> Outcome:
    """Shows the limits, or changes one of them for this workspace."""
    if not called.argument:
        limits = await format_limits(called.person, called.address, deps)
        return Outcome(notice=f"{limits}\nAdmins can change these, for example with `budget run 5`.")
    name, _, amount = called.argument.partition(" ")
    scope, limit = cast(BudgetScope, name), parse_limit(amount)
    await deps.ledger.change_limit(scope, limit, at=called.address, by=called.person)
    shown = deps.budget.limits.get(scope, NO_LIMIT) if limit is None else limit
    return Outcome(notice=f"The limit for {SCOPE_WORDS[scope]} is now {shown}.", is_private=False)


async def format_limits(person: Person, address: Address, deps: BudgetDeps) -> str:
    """Returns the limits that apply to the person at the address, one per line, with the amount used of each."""
    since = utc_day(datetime.now(UTC))
    spent = await deps.ledger.spending_by(person, address, since=since)
    limits: Limits = {**deps.budget.limits, **spent.changed_limits}
    used = {
        "person": f"you have used {format_dollars(spent.person.cost_usd)} US dollars"
        f" and {spent.person.tokens:,} tokens today",
        "channel": f"{format_dollars(spent.channel.cost_usd)} US dollars today",
        "workspace": f"{format_dollars(spent.workspace.cost_usd)} US dollars today",
    }
    lines = [
        f"- {SCOPE_WORDS[scope]}: {limit}" + (f" ({used[scope]})" if scope in used else "")
        for scope, limit in limits.items()
    ]
    return "\n".join(lines)
