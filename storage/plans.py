"""The plans of threads."""

from collections.abc import Callable
from datetime import UTC, datetime

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, select

from core.failpoints import Failpoint
from core.plans import Plan, Plans, Step
from storage.agent_tables import plans
from storage.database import Database
from storage.snapshots import lock_thread
from storage.tables import threads

_CHANGE = Failpoint("storage.change_plans")
_STEPS = TypeAdapter(tuple[Step, ...])


class SqlPlans:
    """`core.plans.PlanStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, thread_id: str, how: Callable[[Plans], Plans]) -> Plans:
        return await self._database.write(_CHANGE, lambda c: _changed(c, thread_id, how))


def _changed(connection: Connection, thread_id: str, how: Callable[[Plans], Plans]) -> Plans:
    if lock_thread(connection, threads.c.thread_id == thread_id) is None:
        return ()
    here = plans.c.thread_id == thread_id
    rows = connection.execute(select(plans).where(here).order_by(plans.c.created_at)).mappings()
    made_at: dict[str, datetime] = {}
    before: list[Plan] = []
    for row in rows:
        made_at[row["plan_id"]] = row["created_at"]
        before.append(
            Plan(
                plan_id=row["plan_id"],
                title=row["content"]["title"],
                steps=_STEPS.validate_python(row["content"]["steps"]),
                is_active=row["is_active"],
            )
        )
    after = how(tuple(before))
    if after == tuple(before):
        return after
    connection.execute(delete(plans).where(here))
    values: list[dict[str, object]] = [
        {
            "thread_id": thread_id,
            "plan_id": plan.plan_id,
            "content": {"title": plan.title, "steps": _STEPS.dump_python(plan.steps, mode="json")},
            "is_active": plan.is_active,
            "created_at": made_at.get(plan.plan_id, datetime.now(UTC)),
        }
        for plan in after
    ]
    if values:
        connection.execute(plans.insert(), values)
    return after
