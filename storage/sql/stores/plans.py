"""The plans of threads."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pydantic import TypeAdapter
from sqlalchemy import Connection, RowMapping, delete, select

from core.domain.plans import Plan, Plans
from core.failpoints import Failpoint
from storage.sql.database import Database
from storage.sql.stores.thread_snapshots import lock_thread
from storage.sql.tables.agents import plans

_CHANGE = Failpoint("storage.change_plans")
_PLAN = TypeAdapter(Plan)
_COLUMNS = frozenset({"plan_id", "is_active"})


class SqlPlans:
    """`core.domain.plans.PlanStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, thread_id: str, how: Callable[[Plans], Plans]) -> Plans:
        return await self._database.write(_CHANGE, lambda c: _changed(c, thread_id, how))

    async def read(self, thread_id: str) -> Plans:
        return await self._database.read(lambda c: tuple(_plan(row) for row in _rows(c, thread_id)))


def _changed(connection: Connection, thread_id: str, how: Callable[[Plans], Plans]) -> Plans:
    if lock_thread(connection, thread_id) is None:
        return ()
    rows = _rows(connection, thread_id)
    before = tuple(_plan(row) for row in rows)
    after = how(before)
    if after == before:
        return after
    made_at = {row["plan_id"]: row["created_at"] for row in rows}
    connection.execute(delete(plans).where(plans.c.thread_id == thread_id))
    values: list[dict[str, object]] = [
        {
            "thread_id": thread_id,
            "plan_id": plan.plan_id,
            "content": _PLAN.dump_python(plan, mode="json", exclude=set(_COLUMNS)),
            "is_active": plan.is_active,
            "created_at": made_at.get(plan.plan_id, datetime.now(UTC)),
        }
        for plan in after
    ]
    if values:
        connection.execute(plans.insert(), values)
    return after


def _rows(connection: Connection, thread_id: str) -> Sequence[RowMapping]:
    of_thread = select(plans).where(plans.c.thread_id == thread_id).order_by(plans.c.created_at)
    return connection.execute(of_thread).mappings().all()


def _plan(row: RowMapping) -> Plan:
    return _PLAN.validate_python({**row["content"], **{name: row[name] for name in _COLUMNS}})
