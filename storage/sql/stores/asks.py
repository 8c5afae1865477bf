"""Questions that runs left in their threads."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, select

from core.domain.threads import Ask
from core.failpoints import Failpoint
from storage.sql.database import Database
from storage.sql.rows import ask_from_row
from storage.sql.stores.approvals import expire_approvals
from storage.sql.tables import pending_asks

_EXPIRE = Failpoint("storage.expire_approvals")


class SqlAsks:
    """`core.stores.Asks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask(self, ask_id: str) -> Ask | None:
        return await self._one(pending_asks.c.ask_id == ask_id)

    async def ask_of_run(self, run_id: str) -> Ask | None:
        return await self._one(pending_asks.c.run_id == run_id)

    async def expire_approvals(self, *, older_than_hours: float) -> tuple[str, ...]:
        """Ends the wait of runs that nobody has answered for so long; answers them, queued again to end."""
        before = datetime.now(UTC) - timedelta(hours=older_than_hours)
        return await self._database.write(_EXPIRE, lambda c: expire_approvals(c, before))

    async def _one(self, condition: ColumnElement[bool]) -> Ask | None:
        newest = select(pending_asks).where(condition).order_by(pending_asks.c.ask_id.desc())
        row = await self._database.read(lambda c: c.execute(newest).mappings().first())
        return ask_from_row(row) if row else None
