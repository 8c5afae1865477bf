"""Questions that runs left in their threads."""

from sqlalchemy import ColumnElement, select

from core.threads import Ask
from storage.database import Database
from storage.rows import ask_of
from storage.tables import pending_asks


class SqlAsks:
    """`core.stores.Asks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask(self, ask_id: str) -> Ask | None:
        return await self._one(pending_asks.c.ask_id == ask_id)

    async def ask_of_run(self, run_id: str) -> Ask | None:
        return await self._one(pending_asks.c.run_id == run_id)

    async def _one(self, condition: ColumnElement[bool]) -> Ask | None:
        newest = select(pending_asks).where(condition).order_by(pending_asks.c.ask_id.desc())
        row = await self._database.read(lambda c: c.execute(newest).mappings().first())
        return ask_of(row) if row else None
