"""How much work waits, and who is there to do it."""

from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from core.metrics import Backlog
from storage.sql.columns import DatabaseNow
from storage.sql.database import Database
from storage.sql.stores.run_claims import has_recent_heartbeat
from storage.sql.tables import renderings, runs, workers

_UNENDED = ("queued", "running", "waiting")


class SqlBacklogs:
    """`core.metrics.Backlogs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def backlog(self) -> Backlog:
        return await self._database.read(_backlog)


def _backlog(connection: Connection) -> Backlog:
    since = func.coalesce(runs.c.requeued_at, runs.c.created_at)
    by_status = select(runs.c.status, func.count(), func.min(since))
    rows = connection.execute(
        by_status.where(runs.c.status.in_(_UNENDED)).group_by(runs.c.status)
    ).all()
    queued_at = next((oldest for status, _, oldest in rows if status == "queued"), None)
    age = DatabaseNow() - workers.c.heartbeat_at
    alive = connection.execute(
        select(func.count(), func.max(age)).where(has_recent_heartbeat())
    ).one()
    shown = select(func.count()).where(renderings.c.is_open)
    return Backlog(
        runs=dict.fromkeys(_UNENDED, 0) | {status: count for status, count, _ in rows},
        oldest_queued_seconds=_age_seconds(queued_at),
        processes_alive=alive[0],
        oldest_heartbeat_seconds=max(0.0, float(alive[1] or 0)),
        open_deliveries=connection.execute(shown).scalar_one(),
    )


def _age_seconds(moment: datetime | None) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds()) if moment else 0.0
