"""Reads the ledger of model calls for budgets, books calls made outside runs, and stores changed limits."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select, update

from core.domain.budget import (
    BudgetScope,
    Limit,
    Limits,
    PlannedCall,
    Reservation,
    Spending,
    Spent,
    find_exhausted,
    has_limits,
)
from core.domain.ids import new_id
from core.domain.threads import APP_PREFIX, Address, Person, Usage
from core.failpoints import Failpoint
from core.stores import UsageEntry
from storage.sql.database import Store, reads, writes
from storage.sql.rows import RowValues, usage_to_row
from storage.sql.statements import CompiledStatement, insert_or_replace, lock_name, upsert_adding
from storage.sql.stores.audit import record_act
from storage.sql.stores.conversations import lock_thread
from storage.sql.tables import budget_limits, runs, threads, usage_days, usages

_RESERVE = Failpoint("storage.reserve_budget")
_TOKENS = usages.c.input_tokens - usages.c.cached_tokens * 9 // 10 + usages.c.output_tokens
"""`Usage.budget_tokens`."""
_Columns = Sequence[ColumnElement[float]]
_COUNTED: _Columns = (usages.c.cost_usd, _TOKENS, case((usages.c.cost_usd == 0, _TOKENS), else_=0))
_COUNTED_OF_DAY: _Columns = (usage_days.c.cost_usd, usage_days.c.tokens, usage_days.c.unpriced_tokens)
_WIDTH = 3 * len(_COUNTED)
"""The number of sums over the person, over the channel, and over all."""
_RESERVED: _Columns = (
    runs.c.reserved_microdollars / 1e6,
    runs.c.reserved_tokens,
    case((runs.c.reserved_microdollars == 0, runs.c.reserved_tokens), else_=0),
)


def _sums_of(
    columns: _Columns, person: ColumnElement[str | None], channel: ColumnElement[str]
) -> list[ColumnElement[float]]:
    """Returns the sums over the person, over the channel, and over all rows. Their ids are parameters."""
    is_person = person.is_not_distinct_from(bindparam("person_id"))
    in_channel = channel == bindparam("channel_id")
    chosen = [case((is_person, column), else_=0) for column in columns]
    chosen += [case((in_channel, column), else_=0) for column in columns]
    return [func.coalesce(func.sum(column), 0) for column in (*chosen, *columns)]


# Each turn of a run runs these statements.
_SELECT_PLACE = CompiledStatement(
    select(threads.c.platform, threads.c.workspace_id, threads.c.channel_id, runs.c.requester_id)
    .join(runs, runs.c.thread_id == threads.c.thread_id)
    .where(runs.c.run_id == bindparam("run_id"))
)
_SUM_OF_RUN = select(*(func.coalesce(func.sum(column), 0) for column in _COUNTED)).where(
    usages.c.run_id == bindparam("run_id")
)
_SUM_OF_DAY = select(*_sums_of(_COUNTED_OF_DAY, usage_days.c.user_id, usage_days.c.channel_id)).where(
    usage_days.c.platform == bindparam("platform"),
    usage_days.c.workspace_id == bindparam("workspace_id"),
    usage_days.c.day >= bindparam("since"),
)
_ADD_USAGE = CompiledStatement(usages.insert())
_ADD_TO_DAY = CompiledStatement(
    upsert_adding(
        usage_days,
        ("platform", "workspace_id", "day", "channel_id", "user_id"),
        ("cost_usd", "tokens", "unpriced_tokens"),
    )
)
_SELECT_LIMITS = CompiledStatement(
    select(budget_limits.c.scope, budget_limits.c.usd, budget_limits.c.tokens).where(
        budget_limits.c.platform == bindparam("platform"), budget_limits.c.workspace_id == bindparam("workspace_id")
    )
)
_SUM_OF_RESERVED = (
    select(*_sums_of(_RESERVED, func.coalesce(runs.c.requester_id, ""), threads.c.channel_id))
    .join(threads, threads.c.thread_id == runs.c.thread_id)
    .where(
        runs.c.status == "running",
        runs.c.reserved_tokens > 0,
        runs.c.run_id != bindparam("run_id"),
        threads.c.platform == bindparam("platform"),
        threads.c.workspace_id == bindparam("workspace_id"),
    )
)
_SUM_DAY = CompiledStatement(_SUM_OF_DAY)
_SUM_ALL = CompiledStatement(select(*(sums.subquery() for sums in (_SUM_OF_DAY, _SUM_OF_RUN, _SUM_OF_RESERVED))))
"""One row with the sums of all three, because running a statement costs more than its sums."""
_UPDATE_RESERVED = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("of_run"))
    .values(reserved_tokens=bindparam("tokens"), reserved_microdollars=bindparam("microdollars"))
)


class BudgetPlace(NamedTuple):
    """The workspace, channel and person that budgets apply to."""

    platform: str
    workspace_id: str
    channel_id: str
    person_id: str | None


class SqlLedger(Store):
    """`core.domain.budget.Ledger`."""

    async def reserve(self, run_id: str, call: PlannedCall) -> Reservation:
        def work(connection: Connection) -> Reservation:
            found = _SELECT_PLACE.fetch_tuples(connection, {"run_id": run_id})
            if not found:
                return Reservation(Spending(), is_granted=True)
            return reserve_call(connection, run_id, BudgetPlace(*found[0]), call)

        return await self.database.write(_RESERVE, work, is_durable=False)

    @reads
    def spending_by(self, connection: Connection, by: Person, at: Address, *, since: date) -> Spending:
        place = BudgetPlace(at.platform, at.workspace_id, at.channel_id, by.person_id)
        [sums] = _SUM_DAY.fetch_tuples(connection, _of_day(place, since))
        return replace(_spending_from(sums, place), changed_limits=_changed_limits(connection, place))

    @writes(Failpoint("storage.book_usage"))
    def book_usage(
        self,
        connection: Connection,
        used: Sequence[tuple[str, Usage]],
        *,
        thread_id: str | None,
        at: Address,
        by: Person,
    ) -> None:
        place = BudgetPlace(at.platform, at.workspace_id, at.channel_id, by.person_id)
        is_stored = thread_id is not None and lock_thread(connection, thread_id) is not None
        of: RowValues = {"thread_id": thread_id if is_stored else None, "run_id": None}
        entries = [UsageEntry(turn_id="", model=model, usage=usage) for model, usage in used]
        add_usage(connection, entries, place, of)

    @writes(Failpoint("storage.change_budget_limit"))
    def change_limit(
        self, connection: Connection, scope: BudgetScope, limit: Limit | None, *, at: Address, by: Person
    ) -> None:
        place = {"platform": at.platform, "workspace_id": at.workspace_id, "scope": scope}
        if limit is None:
            connection.execute(budget_limits.delete().filter_by(**place))
        else:
            insert_or_replace(connection, budget_limits, {**place, "usd": limit.usd, "tokens": limit.tokens})
        subject = f"{scope}: {'default' if limit is None else limit}"
        record_act(connection, "budget_changed", at, by, subject=subject)


def add_usage(connection: Connection, entries: Sequence[UsageEntry], place: BudgetPlace, of: RowValues) -> None:
    """Adds the usage of model calls to the ledger and to the day of the person and the channel. `of` names the thread
    and the run."""
    platform, workspace_id, channel_id, person_id = place
    now = datetime.now(UTC)
    where = {"platform": platform, "workspace_id": workspace_id, "channel_id": channel_id}
    row = {**of, **where, "user_id": person_id, "created_at": now}
    rows = [{"usage_id": new_id(), **row, **usage_to_row(entry)} for entry in entries]
    _ADD_USAGE.execute(connection, *rows)
    spent = Spent()
    for entry in entries:
        spent = spent.plus(entry.usage)
    day = {**where, "day": now.date().isoformat(), "user_id": person_id or ""}
    sums = {"tokens": spent.tokens, "unpriced_tokens": spent.unpriced_tokens}
    _ADD_TO_DAY.execute(connection, {**day, **sums, "cost_usd": spent.cost_usd})


def reserve_call(connection: Connection, run_id: str, place: BudgetPlace, call: PlannedCall) -> Reservation:
    """`Ledger.reserve` for a run whose place is known."""
    changed = _changed_limits(connection, place)
    if not has_limits(call.budget, changed):
        return Reservation(Spending(changed_limits=changed), is_granted=True)
    lock_name(connection, f"budget {place.platform} {place.workspace_id}")
    [sums] = _SUM_ALL.fetch_tuples(connection, {"run_id": run_id, **_of_day(place, call.since)})
    of_day, of_run, reserved = sums[:_WIDTH], sums[_WIDTH:-_WIDTH], sums[-_WIDTH:]
    spending = replace(_spending_from(of_day, place), run=_spent(of_run), changed_limits=changed)
    is_granted = find_exhausted(call.budget, spending.plus_reserved(_spending_from(reserved, place))) is None
    most = call.most if is_granted else Spent()  # otherwise clears what a call whose worker died may have left
    values = {"of_run": run_id, "tokens": most.tokens, "microdollars": round(most.cost_usd * 1e6)}
    _UPDATE_RESERVED.execute(connection, values)
    return Reservation(spending, is_granted=is_granted)


def _of_day(place: BudgetPlace, since: date) -> RowValues:
    return {**place._asdict(), "person_id": place.person_id or "", "since": since.isoformat()}


def _changed_limits(connection: Connection, place: BudgetPlace) -> Limits:
    workspace = {"platform": place.platform, "workspace_id": place.workspace_id}
    return {
        cast(BudgetScope, scope): Limit(usd=usd, tokens=tokens)
        for scope, usd, tokens in _SELECT_LIMITS.fetch_tuples(connection, workspace)
    }


def _spending_from(sums: Sequence[float], place: BudgetPlace) -> Spending:
    width = _WIDTH // 3
    requester = _spent(sums[:width])
    is_app = place.person_id is not None and place.person_id.startswith(APP_PREFIX)
    return Spending(
        person=Spent() if is_app else requester,
        app=requester if is_app else Spent(),
        channel=_spent(sums[width : 2 * width]),
        workspace=_spent(sums[2 * width :]),
    )


def _spent(sums: Sequence[float]) -> Spent:
    cost, tokens, unpriced = sums
    return Spent(cost_usd=float(cost), tokens=int(tokens), unpriced_tokens=int(unpriced))
