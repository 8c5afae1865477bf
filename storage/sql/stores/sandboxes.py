"""Records of the sandboxes of threads."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, select

from core.domain.sandbox_records import SandboxRecord, SandboxState
from core.failpoints import Failpoint
from storage.sql.database import Store, reads, writes
from storage.sql.rows import from_row, to_row
from storage.sql.statements import insert_or_replace
from storage.sql.stores.conversations import lock_thread
from storage.sql.tables import METADATA

_sandboxes = METADATA.tables["sandbox"]


class SqlSandboxRecords(Store):
    """`core.domain.sandbox_records.SandboxRecords`. A record is deleted together with its thread."""

    @reads
    def find(self, connection: Connection, provider: str, thread_id: str) -> SandboxRecord | None:
        return _found(connection, provider, thread_id)

    @writes(Failpoint("storage.replace_sandbox"))
    def replace(self, connection: Connection, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        if lock_thread(connection, record.thread_id) is None:
            return False
        if _compared(_found(connection, record.provider, record.thread_id)) != _compared(expected):
            return False
        sandbox_id = f"{record.provider}:{record.thread_id}"
        insert_or_replace(connection, _sandboxes, {"sandbox_id": sandbox_id, **to_row(record)})
        return True

    @writes(Failpoint("storage.remove_sandbox"))
    def remove(self, connection: Connection, provider: str, thread_id: str) -> None:
        connection.execute(delete(_sandboxes).where(_is(provider, thread_id)))

    @reads
    def list_unused(
        self, connection: Connection, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
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
        return tuple(from_row(SandboxRecord, row) for row in connection.execute(statement).mappings())


def _is(provider: str, thread_id: str) -> ColumnElement[bool]:
    return _sandboxes.c.sandbox_id == f"{provider}:{thread_id}"


def _found(connection: Connection, provider: str, thread_id: str) -> SandboxRecord | None:
    row = connection.execute(select(_sandboxes).where(_is(provider, thread_id))).mappings().one_or_none()
    return from_row(SandboxRecord, row) if row else None


def _compared(record: SandboxRecord | None) -> tuple[str | None, ...] | None:
    """Fields that differ if another process has changed the record; `last_used_at` does not count."""
    return record and (record.provider_ref, record.state, record.snapshot_ref)
