"""The tables of who was let in and who did what, beside those in `storage.sql.tables`, which imports them too."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from sqlalchemy import Index, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    SanitizedText,
    UtcDateTime,
    key,
    moment,
    past,
    words,
)

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES


class AuditEntryRow(SQLModel, table=True):
    """Hangs on no other row: it stays when the conversation goes."""

    __tablename__ = "audit_entry"
    __table_args__ = (Index("ix_audit_entry_workspace", "platform", "workspace_id", "entry_id"),)

    entry_id: str = key()
    happened_at: datetime = moment()
    action: str = words()
    actor_id: str = words()
    actor_name: str = words()
    platform: str = words()
    workspace_id: str = words()
    channel_id: str = words()
    thread_key: str = words()
    thread_id: str = words()
    run_id: str = words()
    subject: str = words()


class PairingRow(SQLModel, table=True):
    """A request while `code_hash` is set, else a pairing."""

    __tablename__ = "pairing"

    platform: str = key()
    workspace_id: str = key()
    person_id: str = key()
    person_name: str = words()
    code_hash: str | None = Field(default=None, sa_type=SanitizedText)
    asked_at: datetime = moment()
    expires_at: datetime = Field(sa_type=UtcDateTime)
    paired_at: datetime | None = past()
    paired_by: str | None = words(None)


audit_entries: Table = SQLModel.metadata.tables["audit_entry"]
pairings: Table = SQLModel.metadata.tables["pairing"]
