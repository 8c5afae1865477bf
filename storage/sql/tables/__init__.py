"""The tables. Rows never leave this package: `storage.sql.rows` converts them to the nouns of core and back."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from pydantic import JsonValue
from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    JsonDocument,
    SanitizedText,
    key,
    moment,
    once_of,
    part_of,
    partial_unique_index,
    past,
    words,
)
from storage.sql.tables.access import audit_entries as audit_entries
from storage.sql.tables.access import pairings as pairings
from storage.sql.tables.agents import agent_versions as agent_versions
from storage.sql.tables.agents import plans as plans
from storage.sql.tables.knowledge import METADATA
from storage.sql.tables.usage import usages as usages

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES
_ADDRESS = ("platform", "workspace_id", "channel_id", "thread_key")


class WorkspaceRow(SQLModel, table=True):
    """`token` is encrypted before it comes here."""

    __tablename__ = "workspace"

    platform: str = key()
    workspace_id: str = key()
    token: str | None = words(None)
    settings: JsonValue = Field(default_factory=dict, sa_type=JsonDocument)


class ThreadRow(SQLModel, table=True):
    """An address belongs to at most one thread at a time: the one that is not unbound."""

    __tablename__ = "thread"
    __table_args__ = (
        partial_unique_index("uq_thread_bound_address", *_ADDRESS, condition="unbound_at IS NULL"),
    )

    thread_id: str = key()
    platform: str = words()
    workspace_id: str = words()
    channel_id: str = words()
    thread_key: str = words()
    state: str = words("idle")
    title: str = words()
    agent_id: str | None = words(None)
    sandbox_id: str | None = words(None)
    next_sequence: int = Field(default=1, sa_type=Integer)
    created_at: datetime = moment()
    last_activity_at: datetime = moment()
    unbound_at: datetime | None = past()


class RunRow(SQLModel, table=True):
    """`deaths`: workers that died over the run in a row, since it last came further. `requeued_at`: it was queued again
    then, after it had begun."""

    __tablename__ = "run"
    __table_args__ = (
        partial_unique_index(
            "uq_run_active", "thread_id", condition="status IN ('queued', 'running')"
        ),
        Index("ix_run_status", "status"),
    )

    run_id: str = key()
    thread_id: str = part_of("thread.thread_id", index=True)
    status: str = words("queued")
    attempt: int = Field(default=0, sa_type=Integer)
    deaths: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    requester_id: str | None = words(None)
    requester_name: str | None = words(None)
    request_ref: str = words()
    model: str = words()
    agent_id: str | None = words(None)
    agent_version_id: str | None = words(None)
    stop_requested: bool = False
    finish_reason: str | None = words(None)
    error: str | None = words(None)
    created_at: datetime = moment()
    requeued_at: datetime | None = past()
    started_at: datetime | None = past()
    finished_at: datetime | None = past()


class ClaimedKeyRow(SQLModel, table=True):
    """A dedupe key that was claimed. It outlives its thread, so that a late second delivery finds it."""

    __tablename__ = "claimed_key"

    dedupe_key: str = key()
    thread_id: str | None = once_of("thread.thread_id")
    run_id: str | None = words(None)
    claimed_at: datetime = moment(index=True)


class ThreadInputRow(SQLModel, table=True):
    """`taken_by` is the run that took the input up; `position` orders the inputs of a thread."""

    __tablename__ = "thread_input"
    __table_args__ = (Index("ix_thread_input_order", "thread_id", "position", unique=True),)

    input_id: str = key()
    thread_id: str = part_of("thread.thread_id")
    dedupe_key: str = Field(unique=True, sa_type=SanitizedText)
    position: int = Field(sa_type=Integer)
    kind: str = words()
    author_id: str = words()
    author_name: str = words()
    text: str = words()
    files: JsonValue = Field(default_factory=list, sa_type=JsonDocument)
    message_ref: str = words()
    sent_at: datetime = moment()
    taken_by: str | None = words(None)


class MessageRow(SQLModel, table=True):
    __tablename__ = "message"
    __table_args__ = (Index("uq_message_order", "thread_id", "sequence", unique=True),)

    message_id: str = key()
    thread_id: str = part_of("thread.thread_id")
    run_id: str | None = words(None)
    sequence: int = Field(sa_type=Integer)
    type: str = words()
    is_llm_message: bool
    content: JsonValue = Field(sa_type=JsonDocument)
    details: JsonValue = Field(sa_column=Column("metadata", JsonDocument, nullable=False))
    token_count: int = Field(default=0, sa_type=Integer)
    agent_id: str | None = words(None)
    agent_version_id: str | None = words(None)
    created_at: datetime = moment()


class ToolCallRow(SQLModel, table=True):
    """`position` is given by the database, in the order of the inserts."""

    __tablename__ = "tool_call"
    __table_args__ = (Index("uq_tool_call_place", "run_id", "turn_id", "index", unique=True),)

    position: int | None = Field(
        default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer, "sqlite")
    )
    run_id: str = part_of("run.run_id")
    turn_id: str = words()
    index: int = Field(sa_type=Integer)
    call_id: str = words()
    name: str = words()
    arguments: JsonValue = Field(sa_type=JsonDocument)
    raw: str = words()
    assistant_message_id: str = words()
    state: str = words("started")
    result: JsonValue | None = Field(default=None, sa_type=JsonDocument)
    details: JsonValue = Field(sa_column=Column("metadata", JsonDocument, nullable=False))


class RunEventRow(SQLModel, table=True):
    """`body` is the event as JSON, and null for `MessageAdded`, whose message is read from its own table."""

    __tablename__ = "run_event"

    run_id: str = part_of("run.run_id", primary_key=True)
    attempt: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(primary_key=True, sa_type=Integer)
    thread_id: str = words()
    body: str | None = words(None)
    turn_id: str | None = words(None)
    message_id: str | None = words(None)
    agent_id: str | None = words(None)
    agent_version_id: str | None = words(None)
    created_at: datetime = moment()


class WorkerRow(SQLModel, table=True):
    """`heartbeat_at`: seconds since the epoch by the database's clock."""

    __tablename__ = "worker"

    worker_id: str = key()
    heartbeat_at: float = Field(sa_type=Float)


class LeaseRow(SQLModel, table=True):
    """Stays when it is free, because the fence must go on growing."""

    __tablename__ = "lease"

    thread_id: str = part_of("thread.thread_id", primary_key=True)
    fence: int = Field(default=0, sa_type=Integer)
    run_id: str | None = words(None)
    worker_id: str | None = words(None)


class PendingAskRow(SQLModel, table=True):
    __tablename__ = "pending_ask"
    __table_args__ = (
        partial_unique_index("uq_pending_ask_open", "thread_id", condition="state = 'open'"),
    )

    ask_id: str = key()
    thread_id: str = part_of("thread.thread_id", index=True)
    run_id: str = part_of("run.run_id", index=True)
    kind: str = words("question")
    subject: str = words()
    text: str = words()
    options: JsonValue = Field(default_factory=list, sa_type=JsonDocument)
    state: str = words("open")
    answer: str | None = words(None)
    answered_by_id: str | None = words(None)
    answered_by_name: str | None = words(None)
    created_at: datetime = moment()
    answered_at: datetime | None = past()
    expires_at: datetime | None = past()


class RenderingRow(SQLModel, table=True):
    """Who shows a run in its thread; `is_open` while there is something left to show."""

    __tablename__ = "rendering"
    __table_args__ = (partial_unique_index("uq_rendering_open", "run_id", condition="is_open"),)

    run_id: str = part_of("run.run_id", primary_key=True)
    is_open: bool = True
    fence: int = Field(default=0, sa_type=Integer)
    worker_id: str | None = words(None)


class DeliveryRow(SQLModel, table=True):
    """`is_outdated`: what it shows changed while the first post of it was perhaps under way."""

    __tablename__ = "delivery"
    __table_args__ = (Index("uq_delivery_place", "run_id", "slot", "ordinal", unique=True),)

    delivery_id: str = key()
    run_id: str = part_of("run.run_id")
    slot: str = words()
    ordinal: int = Field(default=0, sa_type=Integer)
    body: JsonValue = Field(sa_type=JsonDocument)
    state: str = words("pending")
    is_outdated: bool = False
    message_ref: str | None = words(None)
    error: str | None = words(None)


class SandboxRow(SQLModel, table=True):
    __tablename__ = "sandbox"

    sandbox_id: str = key()
    thread_id: str = part_of("thread.thread_id", index=True)
    provider: str = words()
    provider_ref: str = words()
    state: str = words("started")
    snapshot_ref: str | None = words(None)
    last_used_at: datetime = moment()


class InboundCursorRow(SQLModel, table=True):
    __tablename__ = "inbound_cursor"

    platform: str = key()
    scope: str = key()
    cursor: str = words()


_tables = METADATA.tables
workspaces: Table = _tables["workspace"]
threads: Table = _tables["thread"]
runs: Table = _tables["run"]
claimed_keys: Table = _tables["claimed_key"]
thread_inputs: Table = _tables["thread_input"]
messages: Table = _tables["message"]
tool_calls: Table = _tables["tool_call"]
run_events: Table = _tables["run_event"]
workers: Table = _tables["worker"]
leases: Table = _tables["lease"]
pending_asks: Table = _tables["pending_ask"]
renderings: Table = _tables["rendering"]
deliveries: Table = _tables["delivery"]
inbound_cursors: Table = _tables["inbound_cursor"]
