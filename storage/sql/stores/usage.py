"""Reads the ledger of model calls for budgets, and books calls made outside runs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from core.domain.budget import Spending
from core.domain.ids import new_id
from core.domain.threads import Address, Person, Usage
from core.failpoints import Failpoint
from core.stores import UsageEntry
from storage.sql.database import Database
from storage.sql.rows import RowValues, usage_to_row
from storage.sql.tables import runs, threads, usages

_BOOK = Failpoint("storage.book_usage")
_COUNTED = (
    usages.c.input_tokens,
    usages.c.cached_tokens,
    usages.c.output_tokens,
    usages.c.cost_usd,
    usages.c.estimated_usd,
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

    async def spending(self, run_id: str, *, since: datetime) -> Spending:
        return await self._database.read(lambda c: _spending(c, run_id, since))

    async def spending_by(self, by: Person, at: Address, *, since: datetime) -> Spending:
        place = _Place(at.platform, at.workspace_id, at.channel_id, by.person_id)
        return await self._database.read(lambda c: _of_days(c, place, since))

    async def book(
        self, used: Sequence[tuple[str, Usage]], *, thread_id: str, at: Address, by: Person
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
        return Spending(run=_usage(of_run))
    return replace(_of_days(connection, _Place(*place), since), run=_usage(of_run))


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
    return Spending(
        person_day=_usage(found[:width]),
        channel_day=_usage(found[width : 2 * width]),
        workspace_day=_usage(found[2 * width :]),
    )


def _sums_where(condition: ColumnElement[bool]) -> list[ColumnElement[float]]:
    return [func.coalesce(func.sum(case((condition, column), else_=0)), 0) for column in _COUNTED]


def _usage(sums: "tuple[float, ...]") -> Usage:
    read, cached, written, cost, estimated = sums
    return Usage(
        input_tokens=int(read),
        cached_tokens=int(cached),
        output_tokens=int(written),
        cost_usd=float(cost),
        estimated_usd=float(estimated),
    )
