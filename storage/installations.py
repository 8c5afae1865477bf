"""The workspaces that installed the bot."""

from sqlalchemy import Connection, and_, delete, select, update

from core.failpoints import Failpoint
from core.installations import Installation
from core.threads import Address, Person
from storage.audit import record_act
from storage.database import Database
from storage.rows import Row
from storage.snapshots import UNENDED
from storage.tables import runs, threads, workspaces
from storage.upserts import insert_or_replace

_SAVE = Failpoint("storage.save_installation")
_RESEAL = Failpoint("storage.reseal_token")
_LEAVE = Failpoint("storage.leave_workspace")
_KEYS = ("platform", "workspace_id")


class SqlInstallations:
    """`core.installations.Installations`."""

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
        statement = select(workspaces).where(
            workspaces.c.platform == platform,
            workspaces.c.workspace_id == workspace_id,
            workspaces.c.token.is_not(None),
        )
        row = await self._database.read(lambda c: c.execute(statement).mappings().first())
        return _installation_of(row) if row else None

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


def _leave(connection: Connection, platform: str, workspace_id: str) -> tuple[str, ...]:
    """What comes twice is recorded once: a workspace that has no token any more has left already."""
    is_here = and_(workspaces.c.platform == platform, workspaces.c.workspace_id == workspace_id)
    if connection.execute(delete(workspaces).where(is_here)).rowcount:
        by = Person(person_id=platform, name=platform)
        record_act(connection, "workspace_left", _place(platform, workspace_id), by)
    active = (
        select(runs.c.run_id)
        .join(threads, threads.c.thread_id == runs.c.thread_id)
        .where(
            threads.c.platform == platform,
            threads.c.workspace_id == workspace_id,
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
