"""Reads the ledger of model calls for budgets, books calls made outside runs, and stores changed limits."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select, update

from core.domain.audit import AuditEntry
from core.domain.budget import (
    Budget,
    BudgetScope,
    Limit,
    Reservation,
    Spending,
    Spent,
    find_exhausted,
)
from core.domain.ids import new_id
from core.domain.threads import APP_PREFIX, Address, Person, Usage
from core.failpoints import Failpoint
from core.stores import UsageEntry
from storage.sql.database import Database
from storage.sql.rows import RowValues, usage_to_row
from storage.sql.statements import CompiledStatement
from storage.sql.stores.audit import insert_entry
from storage.sql.tables import budget_limits, runs, threads, usages

_BOOK = Failpoint("storage.book_usage")
_RESERVE = Failpoint("storage.reserve_budget")
_CHANGE_LIMIT = Failpoint("storage.change_budget_limit")
_TOKENS = usages.c.input_tokens + usages.c.output_tokens
_Columns = Sequence[ColumnElement[float]]
_COUNTED: _Columns = (
    usages.c.cost_usd,
    _TOKENS,
    case((usages.c.cost_usd == 0, _TOKENS), else_=0),
)
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
_SUM_OF_RUN = CompiledStatement(
    select(*(func.coalesce(func.sum(column), 0) for column in _COUNTED)).where(
        usages.c.run_id == bindparam("run_id")
    )
)
_SUM_OF_DAY = CompiledStatement(
    select(*_sums_of(_COUNTED, usages.c.user_id, usages.c.channel_id)).where(
        usages.c.platform == bindparam("platform"),
        usages.c.workspace_id == bindparam("workspace_id"),
        usages.c.created_at >= bindparam("since"),
    )
)
_SELECT_LIMITS = CompiledStatement(
    select(budget_limits.c.scope, budget_limits.c.usd, budget_limits.c.tokens).where(
        budget_limits.c.platform == bindparam("platform"),
        budget_limits.c.workspace_id == bindparam("workspace_id"),
    )
)
_SUM_OF_RESERVED = CompiledStatement(
    select(*_sums_of(_RESERVED, runs.c.requester_id, threads.c.channel_id))
    .join(threads, threads.c.thread_id == runs.c.thread_id)
    .where(
        runs.c.status == "running",
        runs.c.reserved_tokens > 0,
        runs.c.run_id != bindparam("run_id"),
        threads.c.platform == bindparam("platform"),
        threads.c.workspace_id == bindparam("workspace_id"),
    )
)
_UPDATE_RESERVED = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("of_run"))
    .values(reserved_tokens=bindparam("tokens"), reserved_microdollars=bindparam("microdollars"))
)


class _Place(NamedTuple):
    """The workspace, channel and person that budgets apply to."""

    platform: str
    workspace_id: str
    channel_id: str
    person_id: str | None


class SqlLedger:
    """`core.domain.budget.Ledger`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spending_of_run(self, run_id: str, *, since: datetime) -> Spending:
        return await self._database.read(lambda c: _spending(c, run_id, since))

    async def reserve(
        self, run_id: str, most: Spent, budget: Budget, *, since: datetime
    ) -> Reservation:
        return await self._database.write(
            _RESERVE, lambda c: _reserve(c, run_id, most, budget, since), is_durable=False
        )

    async def spending_by(self, by: Person, at: Address, *, since: datetime) -> Spending:
        place = _Place(at.platform, at.workspace_id, at.channel_id, by.person_id)
        return await self._database.read(lambda c: _of_days(c, place, since))

    async def book(
        self, used: Sequence[tuple[str, Usage]], *, thread_id: str | None, at: Address, by: Person
    ) -> None:
        where: RowValues = {
            "thread_id": thread_id,
            "run_id": None,
            "platform": at.platform,
            "workspace_id": at.workspace_id,
            "channel_id": at.channel_id,
            "user_id": by.person_id,
            "created_at": datetime.now(UTC),
        }
        entries = [UsageEntry(turn_id="", model=model, usage=usage) for model, usage in used]
        rows = [{"usage_id": new_id(), **where, **usage_to_row(entry)} for entry in entries]
        await self._database.write(_BOOK, lambda c: c.execute(usages.insert(), rows).close())

    async def change_limit(
        self, scope: BudgetScope, limit: Limit | None, *, at: Address, by: Person
    ) -> None:
        await self._database.write(
            _CHANGE_LIMIT, lambda c: _change_limit(c, scope, limit, at=at, by=by)
        )


def _change_limit(
    connection: Connection, scope: BudgetScope, limit: Limit | None, *, at: Address, by: Person
) -> None:
    place = {"platform": at.platform, "workspace_id": at.workspace_id, "scope": scope}
    connection.execute(budget_limits.delete().filter_by(**place))
    if limit is not None:
        values = {**place, "usd": limit.usd, "tokens": limit.tokens}
        connection.execute(budget_limits.insert().values(values))
    entry = AuditEntry(
        action="budget_changed",
        actor=by,
        address=at,
        subject=f"{scope}: {'default' if limit is None else limit}",
        happened_at=datetime.now(UTC),
    )
    insert_entry(connection, entry)


def _reserve(
    connection: Connection, run_id: str, most: Spent, budget: Budget, since: datetime
) -> Reservation:
    place = _place(connection, run_id)
    if place is None:
        return Reservation(Spending(), is_granted=True)
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        key = func.hashtext(f"budget {place.platform} {place.workspace_id}")
        connection.execute(select(func.pg_advisory_xact_lock(key)))
    spending = _spending_at(connection, run_id, place, since)
    [others] = _SUM_OF_RESERVED.fetch_tuples(connection, {"run_id": run_id, **place._asdict()})
    if find_exhausted(budget, spending.plus_reserved(_spending_from(others, place))) is not None:
        return Reservation(spending, is_granted=False)
    microdollars = round(most.cost_usd * 1e6)
    reserved = {"of_run": run_id, "tokens": most.tokens, "microdollars": microdollars}
    _UPDATE_RESERVED.execute(connection, reserved)
    return Reservation(spending, is_granted=True)


def _place(connection: Connection, run_id: str) -> _Place | None:
    found = _SELECT_PLACE.fetch_tuples(connection, {"run_id": run_id})
    return _Place(*found[0]) if found else None


def _spending(connection: Connection, run_id: str, since: datetime) -> Spending:
    place = _place(connection, run_id)
    if place is None:
        return Spending(run=_of_run(connection, run_id))
    return _spending_at(connection, run_id, place, since)


def _spending_at(connection: Connection, run_id: str, place: _Place, since: datetime) -> Spending:
    return replace(_of_days(connection, place, since), run=_of_run(connection, run_id))


def _of_run(connection: Connection, run_id: str) -> Spent:
    [sums] = _SUM_OF_RUN.fetch_tuples(connection, {"run_id": run_id})
    return _spent(sums)


def _of_days(connection: Connection, place: _Place, since: datetime) -> Spending:
    [sums] = _SUM_OF_DAY.fetch_tuples(connection, {"since": since, **place._asdict()})
    workspace = {"platform": place.platform, "workspace_id": place.workspace_id}
    changed = _SELECT_LIMITS.fetch_tuples(connection, workspace)
    limits = {
        cast(BudgetScope, scope): Limit(usd=usd, tokens=tokens) for scope, usd, tokens in changed
    }
    return replace(_spending_from(sums, place), changed_limits=limits)


def _spending_from(sums: Sequence[float], place: _Place) -> Spending:
    width = len(_COUNTED)
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
