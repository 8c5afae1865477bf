"""Claims of take-over links: the first claim of a link is stored, later ones are not."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, select, update

from core.failpoints import Failpoint
from core.stores import TakeoverClaim
from storage.sql.database import Database
from storage.sql.rows import Row, from_row, to_row
from storage.sql.statements import insert_or_skip
from storage.sql.tables import takeover_claims

RETENTION = timedelta(days=1)
_CLAIM = Failpoint("web.claim_takeover")
_UPDATE = Failpoint("storage.update_takeover")


class SqlTakeoverClaims:
    """`core.stores.TakeoverClaims`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, claim: TakeoverClaim) -> bool:
        row = {**to_row(claim, "is_ended"), "ended_at": None}
        return await self._database.write(_CLAIM, lambda c: insert_or_skip(c, takeover_claims, [row]) == 1)

    async def find(self, link_key: str) -> TakeoverClaim | None:
        statement = select(takeover_claims).where(takeover_claims.c.link_key == link_key)
        row = await self._database.read(lambda c: c.execute(statement).mappings().first())
        return _claim_of(row) if row is not None else None

    async def record_use(self, link_key: str, used_at: datetime) -> None:
        statement = update(takeover_claims).where(
            takeover_claims.c.link_key == link_key, takeover_claims.c.used_at < used_at
        )
        await self._database.write(_UPDATE, lambda c: c.execute(statement.values(used_at=used_at)).close())

    async def end(self, link_key: str) -> bool:
        statement = update(takeover_claims).where(
            takeover_claims.c.link_key == link_key, takeover_claims.c.ended_at.is_(None)
        )
        ended = statement.values(ended_at=datetime.now(UTC))
        return await self._database.write(_UPDATE, lambda c: c.execute(ended).rowcount == 1)

    async def active(self) -> tuple[TakeoverClaim, ...]:
        return await self._database.write(_UPDATE, _delete_old_and_list_active)


def _delete_old_and_list_active(connection: Connection) -> tuple[TakeoverClaim, ...]:
    before = datetime.now(UTC) - RETENTION
    connection.execute(delete(takeover_claims).where(takeover_claims.c.expires_at < before))
    active = select(takeover_claims).where(takeover_claims.c.ended_at.is_(None))
    return tuple(map(_claim_of, connection.execute(active).mappings()))


def _claim_of(row: Row) -> TakeoverClaim:
    return from_row(TakeoverClaim, row, is_ended=row["ended_at"] is not None)
