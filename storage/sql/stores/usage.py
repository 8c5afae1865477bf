"""Reads the ledger of model calls for budgets, books calls made outside runs, and stores changed limits."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from core.domain.audit import AuditEntry
from core.domain.budget import BudgetScope, Limit, Spending, Spent
from core.domain.ids import new_id
from core.domain.threads import APP_PREFIX, Address, Person, Usage
from core.failpoints import Failpoint
from core.stores import UsageEntry
from storage.sql.database import Database
from storage.sql.rows import RowValues, usage_to_row
from storage.sql.stores.audit import insert_entry
from storage.sql.tables import budget_limits, runs, threads, usages

_BOOK = Failpoint("storage.book_usage")
_CHANGE_LIMIT = Failpoint("storage.change_budget_limit")
_TOKENS = usages.c.input_tokens + usages.c.output_tokens
_COUNTED = (usages.c.cost_usd, _TOKENS, case((usages.c.cost_usd == 0, _TOKENS), else_=0))


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


def _spending(connection: Connection, run_id: str, since: datetime) -> Spending:
    of_run = connection.execute(
        select(*(func.coalesce(func.sum(column), 0) for column in _COUNTED)).where(
            usages.c.run_id == run_id
        )
    ).one()
    place = connection.execute(
        select(
            threads.c.platform, threads.c.workspace_id, threads.c.channel_id, runs.c.requester_id
        )
        .join(runs, runs.c.thread_id == threads.c.thread_id)
        .where(runs.c.run_id == run_id)
    ).one_or_none()
    if place is None:
        return Spending(run=_spent(of_run))
    return replace(_of_days(connection, _Place(*place), since), run=_spent(of_run))


def _of_days(connection: Connection, place: _Place, since: datetime) -> Spending:
    is_person = usages.c.user_id == place.person_id
    is_channel = usages.c.channel_id == place.channel_id
    here = and_(
        usages.c.platform == place.platform,
        usages.c.workspace_id == place.workspace_id,
        usages.c.created_at >= since,
    )
    sums = [*_sums_where(is_person), *_sums_where(is_channel)]
    sums += [func.coalesce(func.sum(column), 0) for column in _COUNTED]
    found = connection.execute(select(*sums).where(here)).one()
    width = len(_COUNTED)
    changed = connection.execute(
        select(budget_limits.c.scope, budget_limits.c.usd, budget_limits.c.tokens).where(
            budget_limits.c.platform == place.platform,
            budget_limits.c.workspace_id == place.workspace_id,
        )
    )
    requester = _spent(found[:width])
    is_app = place.person_id is not None and place.person_id.startswith(APP_PREFIX)
    return Spending(
        person=Spent() if is_app else requester,
        app=requester if is_app else Spent(),
        channel=_spent(found[width : 2 * width]),
        workspace=_spent(found[2 * width :]),
        changed_limits={
            cast(BudgetScope, scope): Limit(usd=usd, tokens=tokens)
            for scope, usd, tokens in changed
        },
    )


def _sums_where(condition: ColumnElement[bool]) -> list[ColumnElement[float]]:
    return [func.coalesce(func.sum(case((condition, column), else_=0)), 0) for column in _COUNTED]


def _spent(sums: "tuple[float, ...]") -> Spent:
    cost, tokens, unpriced = sums
    return Spent(cost_usd=float(cost), tokens=int(tokens), unpriced_tokens=int(unpriced))
