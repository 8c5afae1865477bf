"""The audit log. Entries are written in the transaction of the action that they record."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, select

from core.domain.actions import StoredAction
from core.domain.approval import APPROVE_ALWAYS, asked_tools, find_choice, is_allowed, is_denied
from core.domain.audit import AuditAction, AuditEntry
from core.domain.ids import new_id
from core.domain.threads import Address, Person, Receipt, StopRun, Thread
from core.failpoints import Failpoint
from storage.sql.database import Store, reads, writes
from storage.sql.rows import from_row, to_row
from storage.sql.statements import CompiledStatement
from storage.sql.tables import audit_entries

SUBJECT_CHARACTERS_MAX = 300
SWEPT_AT_ONCE_MAX = 500
_ADD_ENTRY = CompiledStatement(audit_entries.insert())


class SqlAuditLog(Store):
    """`core.domain.audit.AuditLog`."""

    @writes(Failpoint("storage.record_audit"))
    def record(self, connection: Connection, entry: AuditEntry) -> None:
        insert_entry(connection, entry)

    @reads
    def newest_entries(
        self, connection: Connection, *, limit: int, platform: str | None = None, workspace_id: str | None = None
    ) -> tuple[AuditEntry, ...]:
        statement = select(audit_entries).order_by(audit_entries.c.entry_id.desc()).limit(limit)
        if platform is not None:
            statement = statement.where(audit_entries.c.platform == platform)
        if workspace_id is not None:
            statement = statement.where(audit_entries.c.workspace_id == workspace_id)
        return tuple(
            from_row(
                AuditEntry,
                row,
                actor=Person(person_id=row["actor_id"], name=row["actor_name"]),
                address=from_row(Address, row),
            )
            for row in connection.execute(statement).mappings()
        )

    @writes(Failpoint("storage.sweep_audit"))
    def delete_old_entries(self, connection: Connection, *, older_than_days: float) -> int:
        """Deletes a batch of the entries that are that old. Returns how many were deleted, 0 if none are left.

        Entry ids sort by creation time, so the oldest are found without an index on the time. Skips rows that another
        process is deleting."""
        before = datetime.now(UTC) - timedelta(days=older_than_days)
        oldest = (
            select(audit_entries.c.entry_id, audit_entries.c.happened_at)
            .order_by(audit_entries.c.entry_id)
            .limit(SWEPT_AT_ONCE_MAX)
            .with_for_update(skip_locked=True)
        )
        found = connection.execute(oldest).all()
        gone = [entry_id for entry_id, happened_at in found if happened_at < before]
        if gone:
            connection.execute(delete(audit_entries).where(audit_entries.c.entry_id.in_(gone)))
        return len(gone)


def insert_entry(connection: Connection, entry: AuditEntry) -> None:
    values = {
        "entry_id": new_id(),
        **to_row(entry, "actor", "address"),
        **to_row(entry.address),
        "actor_id": entry.actor.person_id,
        "actor_name": entry.actor.name,
        "subject": entry.subject[:SUBJECT_CHARACTERS_MAX],
    }
    _ADD_ENTRY.execute(connection, values)


def record_act(connection: Connection, action: AuditAction, at: Address, by: Person, **others: str) -> None:
    """Records an action that happens now. `others` are the remaining fields of the entry."""
    insert_entry(connection, AuditEntry(action=action, actor=by, address=at, happened_at=datetime.now(UTC), **others))


def record_in_thread(
    connection: Connection, action: AuditAction, thread: Thread, by: Person | None, **others: str
) -> None:
    """Records an action in a conversation. Without `by`, the program itself acted, which is not recorded."""
    if by is not None:
        record_act(connection, action, thread.address, by, thread_id=thread.thread_id, **others)


def record_action(connection: Connection, action: StoredAction, receipt: Receipt) -> None:
    """Records an action that requested a run, answered a question or stopped a run. Messages to a run in progress are
    not recorded."""
    act: AuditAction | None = None
    subject, ask = "", receipt.answered_ask
    if isinstance(receipt.decision, StopRun):
        act = "stop_requested"
    elif ask is not None and ask.kind == "approval":
        act = "approval_given" if is_allowed(ask) else "approval_denied" if is_denied(ask) else None
        subject = ", ".join(asked_tools(ask))
        if find_choice(ask) == APPROVE_ALWAYS:
            subject += " (always in this conversation)"
    elif ask is not None:
        act = "question_answered"
    elif receipt.is_new_run:
        act = "run_requested"
    if act is None or receipt.run_id is None:
        return
    fields = {"thread_id": receipt.thread_id or "", "run_id": receipt.run_id, "subject": subject}
    record_act(connection, act, action.address, action.person, **fields)
