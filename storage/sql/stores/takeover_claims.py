"""Claims of take-over links: the first claim of a link is stored, later ones are not."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, select, update

from core.failpoints import Failpoint
from core.stores import TakeoverClaim
from storage.sql.database import Store, reads, writes
from storage.sql.rows import Row, from_row, to_row
from storage.sql.statements import insert_or_skip
from storage.sql.tables import takeover_claims

RETENTION = timedelta(days=1)
_UPDATE = Failpoint("storage.update_takeover")


class SqlTakeoverClaims(Store):
    """`core.stores.TakeoverClaims`."""

    @writes(Failpoint("web.claim_takeover"))
    def claim(self, connection: Connection, claim: TakeoverClaim) -> bool:
        return insert_or_skip(connection, takeover_claims, [{**to_row(claim, "is_ended"), "ended_at": None}]) == 1

    @reads
    def find(self, connection: Connection, link_key: str) -> TakeoverClaim | None:
        statement = select(takeover_claims).where(takeover_claims.c.link_key == link_key)
        row = connection.execute(statement).mappings().first()
        return _claim_of(row) if row is not None else None

    @writes(_UPDATE)
    def record_use(self, connection: Connection, link_key: str, used_at: datetime) -> None:
        is_later = (takeover_claims.c.link_key == link_key) & (takeover_claims.c.used_at < used_at)
        connection.execute(update(takeover_claims).where(is_later).values(used_at=used_at))

    @writes(_UPDATE)
    def end(self, connection: Connection, link_key: str) -> bool:
        is_open = (takeover_claims.c.link_key == link_key) & takeover_claims.c.ended_at.is_(None)
        return (
            connection.execute(update(takeover_claims).where(is_open).values(ended_at=datetime.now(UTC))).rowcount == 1
        )

    @writes(_UPDATE)
    def active_claims(self, connection: Connection) -> tuple[TakeoverClaim, ...]:
        """Also deletes the claims that expired long ago."""
        before = datetime.now(UTC) - RETENTION
        connection.execute(delete(takeover_claims).where(takeover_claims.c.expires_at < before))
        active = select(takeover_claims).where(takeover_claims.c.ended_at.is_(None))
        return tuple(map(_claim_of, connection.execute(active).mappings()))


def _claim_of(row: Row) -> TakeoverClaim:
    return from_row(TakeoverClaim, row, is_ended=row["ended_at"] is not None)
