"""Who was let in by a code, and who waits for it."""

from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, update

from core.domain.pairing import PairingRequest
from core.domain.threads import Address, Person
from core.failpoints import Failpoint
from storage.sql.database import Database
from storage.sql.rows import Row
from storage.sql.stores.audit import record_act
from storage.sql.tables import pairings
from storage.sql.upserts import insert_or_replace

_ASK = Failpoint("storage.ask_pairing")
_PAIR = Failpoint("storage.pair")
_UNPAIR = Failpoint("storage.unpair")
_PAIRING_KEYS = ("platform", "workspace_id", "person_id")


class SqlPairings:
    """`core.domain.pairing.Pairings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_paired(self, platform: str, workspace_id: str, person_id: str) -> bool:
        statement = select(pairings.c.person_id).where(
            _is_paired(platform, workspace_id), pairings.c.person_id == person_id
        )
        return await self._database.read(lambda c: c.execute(statement).first() is not None)

    async def ask(self, request: PairingRequest, *, open_max: int) -> bool:
        return await self._database.write(_ASK, lambda c: _ask(c, request, open_max))

    async def pair(
        self, code_hash: str, *, workspace_id: str, at: Address, by: Person
    ) -> Person | None:
        return await self._database.write(
            _PAIR, lambda c: _pair(c, code_hash, workspace_id, at, by)
        )

    async def unpair(
        self, name: str, *, workspace_id: str, at: Address, by: Person
    ) -> Person | None:
        return await self._database.write(_UNPAIR, lambda c: _unpair(c, name, workspace_id, at, by))

    async def paired(self, platform: str, workspace_id: str) -> tuple[Person, ...]:
        statement = select(pairings).where(_is_paired(platform, workspace_id))
        ordered = statement.order_by(pairings.c.person_name, pairings.c.person_id)
        return await self._database.read(
            lambda c: tuple(map(_person_of, c.execute(ordered).mappings()))
        )


def _in_workspace(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(pairings.c.platform == platform, pairings.c.workspace_id == workspace_id)


def _is_paired(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(_in_workspace(platform, workspace_id), pairings.c.paired_at.is_not(None))


def _ask(connection: Connection, request: PairingRequest, open_max: int) -> bool:
    here = _in_workspace(request.platform, request.workspace_id)
    is_open = and_(pairings.c.paired_at.is_(None), pairings.c.expires_at > request.asked_at)
    own = select(pairings.c.person_id).where(
        here,
        pairings.c.person_id == request.person.person_id,
        or_(pairings.c.paired_at.is_not(None), is_open),
    )
    if connection.execute(own).first() is not None:
        return False
    waiting = select(func.count()).select_from(pairings).where(here, is_open)
    if connection.execute(waiting).scalar_one() >= open_max:
        return False
    connection.execute(
        delete(pairings).where(
            here, pairings.c.paired_at.is_(None), pairings.c.expires_at <= request.asked_at
        )
    )
    values: dict[str, object] = {
        "platform": request.platform,
        "workspace_id": request.workspace_id,
        "person_id": request.person.person_id,
        "person_name": request.person.name,
        "code_hash": request.code_hash,
        "asked_at": request.asked_at,
        "expires_at": request.expires_at,
        "paired_at": None,
        "paired_by": None,
    }
    insert_or_replace(connection, pairings, _PAIRING_KEYS, values)
    return True


def _pair(
    connection: Connection, code_hash: str, workspace_id: str, at: Address, by: Person
) -> Person | None:
    now = datetime.now(UTC)
    is_asked = and_(
        _in_workspace(at.platform, workspace_id),
        pairings.c.code_hash == code_hash,
        pairings.c.expires_at > now,
    )
    found = connection.execute(select(pairings).where(is_asked).with_for_update()).mappings()
    row = found.first()
    if row is None:
        return None
    connection.execute(
        update(pairings)
        .where(is_asked, pairings.c.person_id == row["person_id"])
        .values(code_hash=None, paired_at=now, paired_by=by.person_id)
    )
    person = _person_of(row)
    record_act(connection, "paired", at, by, subject=f"{person.name} ({person.person_id})")
    return person


def _unpair(
    connection: Connection, name: str, workspace_id: str, at: Address, by: Person
) -> Person | None:
    paired = _is_paired(at.platform, workspace_id)
    rows = connection.execute(select(pairings).where(paired).with_for_update()).mappings().all()
    found = [row for row in rows if row["person_id"] == name]
    found = found or [row for row in rows if row["person_name"].casefold() == name.casefold()]
    if len(found) != 1:
        return None
    person = _person_of(found[0])
    connection.execute(delete(pairings).where(paired, pairings.c.person_id == person.person_id))
    record_act(connection, "unpaired", at, by, subject=f"{person.name} ({person.person_id})")
    return person


def _person_of(row: Row) -> Person:
    return Person(person_id=row["person_id"], name=row["person_name"])
