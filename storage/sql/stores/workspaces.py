"""Installations of the bot in workspaces and organisations, and users paired by a code.

A workspace that joined through its organisation has a row without a token, which names the organisation."""

from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, update

from core.domain.installations import Installation
from core.domain.pairing import PairingRequest
from core.domain.threads import Address, Person
from core.failpoints import Failpoint
from storage.sql.database import Store, reads, writes
from storage.sql.rows import Row, from_row, to_row
from storage.sql.statements import insert_or_replace, insert_or_skip, lock_name
from storage.sql.stores.audit import record_act
from storage.sql.stores.conversations import UNENDED
from storage.sql.tables import pairings, runs, schedules, threads, workspaces

_ORGANISATION = "organisation_id"


class SqlInstallations(Store):
    """`core.domain.installations.Installations`."""

    @writes(Failpoint("storage.save_installation"))
    def save(self, connection: Connection, installation: Installation, *, by: Person) -> None:
        values: dict[str, object] = {
            "platform": installation.platform,
            "workspace_id": installation.workspace_id,
            "token": installation.sealed_token,
            "settings": installation.facts,
        }
        insert_or_replace(connection, workspaces, values)
        record_act(connection, "workspace_joined", _place(installation.platform, installation.workspace_id), by)

    @writes(Failpoint("storage.reseal_token"))
    def replace_sealed_token(self, connection: Connection, old: Installation, sealed_token: str) -> bool:
        this = update(workspaces).where(_is(old.platform, old.workspace_id), workspaces.c.token == old.sealed_token)
        return connection.execute(this.values(token=sealed_token)).rowcount == 1

    @reads
    def find(self, connection: Connection, platform: str, workspace_id: str) -> Installation | None:
        row = _row(connection, platform, workspace_id)
        if row is not None and row["token"] is None:
            row = _row(connection, platform, row["settings"].get(_ORGANISATION, ""))
        if row is None or row["token"] is None:
            return None
        return from_row(Installation, row, sealed_token=row["token"], facts=row["settings"])

    @writes(Failpoint("storage.join_organisation"))
    def join_organisation(self, connection: Connection, platform: str, workspace_id: str, organisation_id: str) -> bool:
        organisation = _row(connection, platform, organisation_id)
        if organisation is None or organisation["token"] is None:
            return False
        values: dict[str, object] = {
            "platform": platform,
            "workspace_id": workspace_id,
            "token": None,
            "settings": {_ORGANISATION: organisation_id},
        }
        is_other = workspaces.c.settings[_ORGANISATION].as_string() != organisation_id
        is_moving = and_(workspaces.c.token.is_(None), is_other)
        if insert_or_replace(connection, workspaces, values, is_moving):
            by = Person(person_id=organisation_id, name=organisation_id)
            record_act(connection, "workspace_joined", _place(platform, workspace_id), by)
        return True

    @reads
    def has_threads_in(self, connection: Connection, platform: str, workspace_id: str, channel_id: str) -> bool:
        """Looks at bound threads first, which have an index. A schedule outlives the thread that it was armed in."""
        anything = select(threads.c.thread_id).where(
            threads.c.platform == platform, threads.c.workspace_id == workspace_id, threads.c.channel_id == channel_id
        )
        bound = anything.where(threads.c.unbound_at.is_(None))
        armed = select(schedules.c.schedule_id).where(
            schedules.c.platform == platform,
            schedules.c.workspace_id == workspace_id,
            schedules.c.channel_id == channel_id,
        )
        return any(connection.execute(one.limit(1)).first() for one in (bound, armed, anything))

    @writes(Failpoint("storage.leave_workspace"))
    def leave_workspace(self, connection: Connection, platform: str, workspace_id: str) -> tuple[str, ...]:
        """Records a departure once: a workspace without a row has left already."""
        is_member = and_(
            workspaces.c.platform == platform,
            workspaces.c.token.is_(None),
            workspaces.c.settings[_ORGANISATION].as_string() == workspace_id,
        )
        leaving = delete(workspaces).where(or_(_is(platform, workspace_id), is_member))
        left = list(connection.execute(leaving.returning(workspaces.c.workspace_id)).scalars())
        by = Person(person_id=platform, name=platform)
        for one in sorted(left):
            record_act(connection, "workspace_left", _place(platform, one), by)
        active = (
            select(runs.c.run_id)
            .join(threads, threads.c.thread_id == runs.c.thread_id)
            .where(
                threads.c.platform == platform,
                threads.c.workspace_id.in_({workspace_id, *left}),
                runs.c.status.in_(UNENDED),
            )
            .order_by(runs.c.run_id)
        )
        return tuple(connection.execute(active).scalars())


def _row(connection: Connection, platform: str, workspace_id: str) -> Row | None:
    return connection.execute(select(workspaces).where(_is(platform, workspace_id))).mappings().first()


def _is(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(workspaces.c.platform == platform, workspaces.c.workspace_id == workspace_id)


def _place(platform: str, workspace_id: str) -> Address:
    known = "slack" if platform == "slack" else "discord"
    return Address(platform=known, workspace_id=workspace_id, channel_id="", thread_key="")


class SqlPairings(Store):
    """`core.domain.pairing.Pairings`."""

    @reads
    def is_paired(self, connection: Connection, platform: str, workspace_id: str, person_id: str) -> bool:
        theirs = select(pairings.c.person_id).where(
            _is_paired(platform, workspace_id), pairings.c.person_id == person_id
        )
        return connection.execute(theirs).first() is not None

    @writes(Failpoint("storage.ask_pairing"))
    def request_code(self, connection: Connection, request: PairingRequest, *, open_max: int) -> bool:
        here = _in_workspace(request.platform, request.workspace_id)
        lock_name(connection, f"pairing {request.platform} {request.workspace_id}")
        is_waiting = and_(here, pairings.c.paired_at.is_(None))
        connection.execute(delete(pairings).where(is_waiting, pairings.c.expires_at <= request.asked_at))
        values: dict[str, object] = {
            **to_row(request, "person"),
            "person_id": request.person.person_id,
            "person_name": request.person.name,
            "paired_at": None,
            "paired_by": None,
        }
        # a row that is left is a pairing, or a request with a code of its own
        if insert_or_skip(connection, pairings, [values]) == 0:
            return False
        others = and_(is_waiting, pairings.c.person_id != request.person.person_id)
        newest = select(pairings.c.person_id).where(others).order_by(pairings.c.asked_at.desc()).limit(open_max - 1)
        is_old = pairings.c.person_id.not_in([*connection.execute(newest).scalars()])
        connection.execute(delete(pairings).where(others, is_old))
        return True

    @writes(Failpoint("storage.pair"))
    def pair_person(
        self, connection: Connection, code_hash: str, *, workspace_id: str, at: Address, by: Person
    ) -> Person | None:
        now = datetime.now(UTC)
        is_asked = and_(
            _in_workspace(at.platform, workspace_id), pairings.c.code_hash == code_hash, pairings.c.expires_at > now
        )
        row = connection.execute(select(pairings).where(is_asked).with_for_update()).mappings().first()
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

    @writes(Failpoint("storage.unpair"))
    def unpair_person(
        self, connection: Connection, name: str, *, workspace_id: str, at: Address, by: Person
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

    @reads
    def paired_people(self, connection: Connection, platform: str, workspace_id: str) -> tuple[Person, ...]:
        statement = select(pairings).where(_is_paired(platform, workspace_id))
        ordered = statement.order_by(pairings.c.person_name, pairings.c.person_id)
        return tuple(map(_person_of, connection.execute(ordered).mappings()))


def _in_workspace(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(pairings.c.platform == platform, pairings.c.workspace_id == workspace_id)


def _is_paired(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(_in_workspace(platform, workspace_id), pairings.c.paired_at.is_not(None))


def _person_of(row: Row) -> Person:
    return Person(person_id=row["person_id"], name=row["person_name"])
