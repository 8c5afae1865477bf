"""Records of the sandboxes of threads."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import ColumnElement, Connection, delete, select

from core.domain.sandbox_records import SandboxRecord, SandboxState
from core.failpoints import Failpoint
from storage.sql.database import Database, read_all
from storage.sql.rows import from_row, to_row
from storage.sql.statements import insert_or_replace
from storage.sql.stores.conversations import lock_thread
from storage.sql.tables import METADATA

_REPLACE = Failpoint("storage.replace_sandbox")
_REMOVE = Failpoint("storage.remove_sandbox")
_sandboxes = METADATA.tables["sandbox"]


class SqlSandboxRecords:
    """`core.domain.sandbox_records.SandboxRecords`. A record is deleted together with its thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None:
        return await self._database.read(lambda c: _found(c, provider, thread_id))

    async def replace(self, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        return await self._database.write(_REPLACE, lambda c: _replaced(c, record, expected))

    async def remove(self, provider: str, thread_id: str) -> None:
        statement = delete(_sandboxes).where(_is(provider, thread_id))
        await self._database.write(_REMOVE, lambda c: c.execute(statement).close())

    async def of_provider(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        statement = (
            select(_sandboxes)
            .where(
                _sandboxes.c.provider == provider,
                _sandboxes.c.state.in_(states),
                _sandboxes.c.last_used_at < unused_since,
            )
            .order_by(_sandboxes.c.last_used_at)
        )
        return await read_all(self._database, statement, partial(from_row, SandboxRecord))


def _is(provider: str, thread_id: str) -> ColumnElement[bool]:
    return _sandboxes.c.sandbox_id == f"{provider}:{thread_id}"


def _found(connection: Connection, provider: str, thread_id: str) -> SandboxRecord | None:
    statement = select(_sandboxes).where(_is(provider, thread_id))
    row = connection.execute(statement).mappings().one_or_none()
    return from_row(SandboxRecord, row) if row else None


def _replaced(connection: Connection, record: SandboxRecord, expected: SandboxRecord | None) -> bool:
    if lock_thread(connection, record.thread_id) is None:
        return False
    stored = _found(connection, record.provider, record.thread_id)
    if _compared(stored) != _compared(expected):
        return False
    sandbox_id = f"{record.provider}:{record.thread_id}"
    insert_or_replace(connection, _sandboxes, {"sandbox_id": sandbox_id, **to_row(record)})
    return True


def _compared(record: SandboxRecord | None) -> tuple[str | None, ...] | None:
    """Fields that differ if another process has changed the record; `last_used_at` does not count."""
    return record and (record.provider_ref, record.state, record.snapshot_ref)
