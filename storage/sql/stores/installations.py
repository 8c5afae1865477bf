"""The workspaces that installed the bot, and those that an organisation's installation serves.

A workspace that has joined with its organisation has a row without a token, which names the organisation.
"""

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, update

from core.domain.installations import Installation
from core.domain.threads import Address, Person
from core.failpoints import Failpoint
from storage.sql.database import Database
from storage.sql.rows import Row
from storage.sql.stores.audit import record_act
from storage.sql.stores.thread_snapshots import UNENDED
from storage.sql.tables import runs, threads, workspaces
from storage.sql.upserts import insert_or_replace

_SAVE = Failpoint("storage.save_installation")
_RESEAL = Failpoint("storage.reseal_token")
_JOIN = Failpoint("storage.join_organisation")
_LEAVE = Failpoint("storage.leave_workspace")
_ORGANISATION = "organisation_id"
_KEYS = ("platform", "workspace_id")


class SqlInstallations:
    """`core.domain.installations.Installations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, installation: Installation, *, by: Person) -> None:
        await self._database.write(_SAVE, lambda c: _save(c, installation, by))

    async def reseal(self, old: Installation, sealed_token: str) -> bool:
        statement = (
            update(workspaces)
            .where(
                workspaces.c.platform == old.platform,
                workspaces.c.workspace_id == old.workspace_id,
                workspaces.c.token == old.sealed_token,
            )
            .values(token=sealed_token)
        )
        return await self._database.write(_RESEAL, lambda c: c.execute(statement).rowcount == 1)

    async def find(self, platform: str, workspace_id: str) -> Installation | None:
        return await self._database.read(lambda c: _found(c, platform, workspace_id))

    async def join(self, platform: str, workspace_id: str, organisation_id: str) -> bool:
        return await self._database.write(
            _JOIN, lambda c: _join(c, platform, workspace_id, organisation_id)
        )

    async def has_threads_in(self, platform: str, workspace_id: str, channel_id: str) -> bool:
        return await self._database.read(lambda c: _talks_in(c, platform, workspace_id, channel_id))

    async def leave(self, platform: str, workspace_id: str) -> tuple[str, ...]:
        return await self._database.write(_LEAVE, lambda c: _leave(c, platform, workspace_id))


def _save(connection: Connection, installation: Installation, by: Person) -> None:
    values: dict[str, object] = {
        "platform": installation.platform,
        "workspace_id": installation.workspace_id,
        "token": installation.sealed_token,
        "settings": installation.facts,
    }
    insert_or_replace(connection, workspaces, _KEYS, values)
    at = _place(installation.platform, installation.workspace_id)
    record_act(connection, "workspace_joined", at, by)


def _found(connection: Connection, platform: str, workspace_id: str) -> Installation | None:
    row = _row(connection, platform, workspace_id)
    if row is not None and row["token"] is None:
        row = _row(connection, platform, row["settings"].get(_ORGANISATION, ""))
    return _installation_of(row) if row is not None and row["token"] is not None else None


def _row(connection: Connection, platform: str, workspace_id: str) -> Row | None:
    return (
        connection.execute(select(workspaces).where(_is(platform, workspace_id))).mappings().first()
    )


def _is(platform: str, workspace_id: str) -> ColumnElement[bool]:
    return and_(workspaces.c.platform == platform, workspaces.c.workspace_id == workspace_id)


def _join(connection: Connection, platform: str, workspace_id: str, organisation_id: str) -> bool:
    organisation = _row(connection, platform, organisation_id)
    if organisation is None or organisation["token"] is None:
        return False
    here = _row(connection, platform, workspace_id)
    if here is not None and (here["token"] or here["settings"] == {_ORGANISATION: organisation_id}):
        return True
    values: dict[str, object] = {
        "platform": platform,
        "workspace_id": workspace_id,
        "token": None,
        "settings": {_ORGANISATION: organisation_id},
    }
    insert_or_replace(connection, workspaces, _KEYS, values)
    by = Person(person_id=organisation_id, name=organisation_id)
    record_act(connection, "workspace_joined", _place(platform, workspace_id), by)
    return True


def _talks_in(connection: Connection, platform: str, workspace_id: str, channel_id: str) -> bool:
    """Those that are bound first: there is an index on them."""
    anything = select(threads.c.thread_id).where(
        threads.c.platform == platform,
        threads.c.workspace_id == workspace_id,
        threads.c.channel_id == channel_id,
    )
    bound = anything.where(threads.c.unbound_at.is_(None))
    return any(connection.execute(one.limit(1)).first() for one in (bound, anything))


def _leave(connection: Connection, platform: str, workspace_id: str) -> tuple[str, ...]:
    """What comes twice is recorded once: a workspace that has no row any more has left already."""
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


def _place(platform: str, workspace_id: str) -> Address:
    is_slack = platform == "slack"
    return Address(
        platform="slack" if is_slack else "discord",
        workspace_id=workspace_id,
        channel_id="",
        thread_key="",
    )


def _installation_of(row: Row) -> Installation:
    return Installation(
        platform=row["platform"],
        workspace_id=row["workspace_id"],
        sealed_token=row["token"],
        facts=row["settings"],
    )
