"""Tables of threads and runs: inputs, messages, tool calls, events, costs, leases, deliveries and sandboxes."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime
from typing import Any

from pydantic import JsonValue
from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    JsonDocument,
    SanitizedText,
    cascading_foreign_key,
    nullable_foreign_key,
    nullable_timestamp_column,
    partial_unique_index,
    text_column,
    text_primary_key,
    timestamp_column,
)

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES
SQLModel.model_config["defer_build"] = True  # rows are never validated, so pydantic's validators need not be built
_ADDRESS = ("platform", "workspace_id", "channel_id", "thread_key")


def _number_column() -> Any:
    return Field(sa_column=Column(Integer, nullable=False, server_default="0"))


def _attention_column() -> Any:
    return Field(sa_column=Column(SanitizedText, nullable=False, server_default="addressed"))


class ThreadRow(SQLModel, table=True, defer_build=True):
    """An address is bound to at most one thread at a time."""

    __tablename__ = "thread"
    __table_args__ = (
        partial_unique_index("uq_thread_bound_address", *_ADDRESS, condition="unbound_at IS NULL"),
        Index("ix_thread_activity", "last_activity_at", "thread_id"),
        Index("ix_thread_place", "platform", "workspace_id", "channel_id"),
    )

    thread_id: str = text_primary_key()
    platform: str = text_column()
    workspace_id: str = text_column()
    channel_id: str = text_column()
    thread_key: str = text_column()
    state: str = text_column("idle")
    title: str = text_column()
    agent_id: str | None = text_column(None)
    sandbox_id: str | None = text_column(None)
    next_sequence: int = Field(default=1, sa_type=Integer)
    earlier_authors: JsonValue | None = Field(default=None, sa_type=JsonDocument)
    created_at: datetime = timestamp_column()
    last_activity_at: datetime = timestamp_column()
    unbound_at: datetime | None = nullable_timestamp_column()


class ClaimedKeyRow(SQLModel, table=True, defer_build=True):
    """A claimed dedupe key. It outlives its thread, so that a late redelivery is still recognised."""

    __tablename__ = "claimed_key"

    dedupe_key: str = text_primary_key()
    thread_id: str | None = nullable_foreign_key("thread.thread_id")
    run_id: str | None = text_column(None)
    claimed_at: datetime = timestamp_column(index=True)


class InboundCursorRow(SQLModel, table=True, defer_build=True):
    __tablename__ = "inbound_cursor"

    platform: str = text_primary_key()
    scope: str = text_primary_key()
    cursor: str = text_column()


class ThreadInputRow(SQLModel, table=True, defer_build=True):
    """`taken_by` is the run that has read the input; `position` orders the inputs of a thread."""

    __tablename__ = "thread_input"
    __table_args__ = (Index("ix_thread_input_order", "thread_id", "position", unique=True),)

    input_id: str = text_primary_key()
    thread_id: str = cascading_foreign_key("thread.thread_id")
    dedupe_key: str = Field(unique=True, sa_type=SanitizedText)
    position: int = Field(sa_type=Integer)
    kind: str = text_column()
    author_id: str = text_column()
    author_name: str = text_column()
    author_time_zone: str | None = text_column(None)
    text: str = text_column()
    files: JsonValue = Field(default_factory=list, sa_type=JsonDocument)
    message_ref: str = text_column()
    sent_at: datetime = timestamp_column()
    taken_by: str | None = text_column(None)
    attention: str = _attention_column()


class HeardMessageRow(SQLModel, table=True, defer_build=True):
    """A message in an agent's thread that users wrote to each other. `read_by` is the run that has read it."""

    __tablename__ = "heard_message"

    thread_id: str = cascading_foreign_key("thread.thread_id", primary_key=True)
    message_ref: str = text_primary_key()
    author_id: str = text_column()
    author_name: str = text_column()
    text: str = text_column()
    files: JsonValue = Field(default_factory=list, sa_type=JsonDocument)
    sent_at: datetime = timestamp_column()
    read_by: str | None = text_column(None)


class MessageVersionRow(SQLModel, table=True, defer_build=True):
    """The newest edit of a message, or its deletion. `text` is null if it was deleted, or is not for the agent."""

    __tablename__ = "message_version"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    channel_id: str = text_primary_key()
    message_ref: str = text_primary_key()
    thread_key: str = Field(sa_column=Column(SanitizedText, nullable=False, server_default=""))
    author_id: str = text_column()
    text: str | None = text_column(None)
    is_deleted: bool = False
    sent_at: datetime = timestamp_column()


class FollowModeRow(SQLModel, table=True, defer_build=True):
    """The follow mode that users chose for a thread, or for a whole channel if `thread_key` is empty."""

    __tablename__ = "follow_mode"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    channel_id: str = text_primary_key()
    thread_key: str = text_primary_key()
    mode: str = text_column()
    set_at: datetime = timestamp_column()


class MessageRow(SQLModel, table=True, defer_build=True):
    __tablename__ = "message"
    __table_args__ = (Index("uq_message_order", "thread_id", "sequence", unique=True),)

    message_id: str = text_primary_key()
    thread_id: str = cascading_foreign_key("thread.thread_id")
    run_id: str | None = text_column(None)
    sequence: int = Field(sa_type=Integer)
    type: str = text_column()
    is_llm_message: bool
    content: JsonValue = Field(sa_type=JsonDocument)
    details: JsonValue = Field(sa_column=Column("metadata", JsonDocument, nullable=False))
    token_count: int = Field(default=0, sa_type=Integer)
    agent_id: str | None = text_column(None)
    agent_version_id: str | None = text_column(None)
    created_at: datetime = timestamp_column()


class PlanRow(SQLModel, table=True, defer_build=True):
    """`content` is the plan as JSON. At most one plan of a thread is active."""

    __tablename__ = "plan"

    thread_id: str = cascading_foreign_key("thread.thread_id", primary_key=True)
    plan_id: str = text_primary_key()
    content: JsonValue = Field(sa_type=JsonDocument)
    is_active: bool = False
    created_at: datetime = timestamp_column()


class RunRow(SQLModel, table=True, defer_build=True):
    """`number` is the place among the thread's runs, from 1. `deaths`: how many workers died in a row while they ran
    it, since its last finished turn. `requeued_at`: when it was last queued again after it had begun.
    `reserved_tokens` and `reserved_microdollars` are what its model call may cost, 0 between calls."""

    __tablename__ = "run"
    __table_args__ = (
        partial_unique_index("uq_run_active", "thread_id", condition="status IN ('queued', 'running')"),
        Index("uq_run_number", "thread_id", "number", unique=True),
        Index("ix_run_status", "status"),
        Index("ix_run_requester_id", "requester_id"),
    )

    run_id: str = text_primary_key()
    thread_id: str = cascading_foreign_key("thread.thread_id")
    number: int = _number_column()
    status: str = text_column("queued")
    attempt: int = Field(default=0, sa_type=Integer)
    deaths: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    requester_id: str | None = text_column(None)
    requester_name: str | None = text_column(None)
    requester_time_zone: str | None = text_column(None)
    request_ref: str = text_column()
    model: str = text_column()
    agent_id: str | None = text_column(None)
    agent_version_id: str | None = text_column(None)
    attention: str = _attention_column()
    stop_requested: bool = False
    stopped_until: datetime | None = nullable_timestamp_column()
    reserved_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    reserved_microdollars: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    finish_reason: str | None = text_column(None)
    error: str | None = text_column(None)
    requested_at: datetime | None = nullable_timestamp_column()
    created_at: datetime = timestamp_column()
    requeued_at: datetime | None = nullable_timestamp_column()
    started_at: datetime | None = nullable_timestamp_column()
    finished_at: datetime | None = nullable_timestamp_column()


class ToolCallRow(SQLModel, table=True, defer_build=True):
    """`position` is assigned by the database, in insert order."""

    __tablename__ = "tool_call"
    __table_args__ = (Index("uq_tool_call_place", "run_id", "turn_id", "index", unique=True),)

    position: int | None = Field(default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer, "sqlite"))
    run_id: str = cascading_foreign_key("run.run_id")
    turn_id: str = text_column()
    index: int = Field(sa_type=Integer)
    call_id: str = text_column()
    name: str = text_column()
    arguments: JsonValue = Field(sa_type=JsonDocument)
    raw: str = text_column()
    assistant_message_id: str = text_column()
    state: str = text_column("started")
    result: JsonValue | None = Field(default=None, sa_type=JsonDocument)
    details: JsonValue = Field(sa_column=Column("metadata", JsonDocument, nullable=False))


class RunEventRow(SQLModel, table=True, defer_build=True):
    """`body` is the event as JSON, and null for `MessageAdded`, whose message is read from its own table."""

    __tablename__ = "run_event"

    run_id: str = cascading_foreign_key("run.run_id", primary_key=True)
    attempt: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(primary_key=True, sa_type=Integer)
    thread_id: str = text_column()
    body: str | None = text_column(None)
    turn_id: str | None = text_column(None)
    message_id: str | None = text_column(None)
    agent_id: str | None = text_column(None)
    agent_version_id: str | None = text_column(None)
    created_at: datetime = timestamp_column()


class UsageRow(SQLModel, table=True, defer_build=True):
    """The ledger: who spent what, where, on which model. It outlives thread and run, so that budgets hold.

    `estimated_usd` is the part of the cost that was computed from a price."""

    __tablename__ = "usage"
    __table_args__ = (Index("ix_usage_person", "platform", "workspace_id", "user_id"),)

    usage_id: str = text_primary_key()
    thread_id: str | None = nullable_foreign_key("thread.thread_id")
    run_id: str | None = nullable_foreign_key("run.run_id")
    turn_id: str = text_column()
    platform: str = text_column()
    workspace_id: str = text_column()
    channel_id: str = text_column()
    user_id: str | None = text_column(None)
    model: str = text_column()
    input_tokens: int = Field(default=0, sa_type=Integer)
    cached_tokens: int = Field(default=0, sa_type=Integer)
    output_tokens: int = Field(default=0, sa_type=Integer)
    cost_usd: float = Field(default=0.0, sa_type=Float)
    estimated_usd: float = Field(default=0.0, sa_type=Float)
    created_at: datetime = timestamp_column()


class UsageDayRow(SQLModel, table=True, defer_build=True):
    """What a person or an app has spent in one channel on one UTC day, as far as daily budgets need it.

    `day` is in ISO format. `user_id` is empty for work without a person. `unpriced_tokens` are those of calls whose
    cost is unknown."""

    __tablename__ = "usage_day"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    day: str = text_primary_key()
    channel_id: str = text_primary_key()
    user_id: str = text_primary_key()
    cost_usd: float = Field(default=0.0, sa_type=Float)
    tokens: int = Field(default=0, sa_type=BigInteger)
    unpriced_tokens: int = Field(default=0, sa_type=BigInteger)


class PendingAskRow(SQLModel, table=True, defer_build=True):
    """`number` is the place among the thread's questions, from 1."""

    __tablename__ = "pending_ask"
    __table_args__ = (
        partial_unique_index("uq_pending_ask_open", "thread_id", condition="state = 'open'"),
        Index("uq_pending_ask_number", "thread_id", "number", unique=True),
    )

    ask_id: str = text_primary_key()
    thread_id: str = cascading_foreign_key("thread.thread_id")
    number: int = _number_column()
    run_id: str = cascading_foreign_key("run.run_id", index=True)
    kind: str = text_column("question")
    subject: str = text_column()
    text: str = text_column()
    options: JsonValue = Field(default_factory=list, sa_type=JsonDocument)
    state: str = text_column("open")
    answer: str | None = text_column(None)
    answered_by_id: str | None = text_column(None)
    answered_by_name: str | None = text_column(None)
    created_at: datetime = timestamp_column()
    answered_at: datetime | None = nullable_timestamp_column()


class RenderingRow(SQLModel, table=True, defer_build=True):
    """The worker that posts for a run in its thread; `is_open` while something is left to post."""

    __tablename__ = "rendering"
    __table_args__ = (partial_unique_index("uq_rendering_open", "run_id", condition="is_open"),)

    run_id: str = cascading_foreign_key("run.run_id", primary_key=True)
    is_open: bool = True
    fence: int = Field(default=0, sa_type=Integer)
    worker_id: str | None = text_column(None)


class DeliveryRow(SQLModel, table=True, defer_build=True):
    """`is_outdated`: its content changed while its first post may have been in flight."""

    __tablename__ = "delivery"
    __table_args__ = (Index("uq_delivery_place", "run_id", "slot", "ordinal", unique=True),)

    delivery_id: str = text_primary_key()
    run_id: str = cascading_foreign_key("run.run_id")
    slot: str = text_column()
    ordinal: int = Field(default=0, sa_type=Integer)
    body: JsonValue = Field(sa_type=JsonDocument)
    state: str = text_column("pending")
    is_outdated: bool = False
    message_ref: str | None = text_column(None)
    error: str | None = text_column(None)


class FeedbackRow(SQLModel, table=True, defer_build=True):
    """What a person thinks of the answer of a run."""

    __tablename__ = "feedback"

    run_id: str = text_primary_key()
    person_id: str = text_primary_key()
    person_name: str = text_column()
    thread_id: str = cascading_foreign_key("thread.thread_id", index=True)
    is_good: bool
    reason: str = text_column()
    given_at: datetime = timestamp_column()


class WorkerRow(SQLModel, table=True, defer_build=True):
    """`heartbeat_at`: seconds since the epoch by the database's clock."""

    __tablename__ = "worker"

    worker_id: str = text_primary_key()
    heartbeat_at: float = Field(sa_type=Float)


class LeaseRow(SQLModel, table=True, defer_build=True):
    """The row stays when the lease is free, because the fence must keep growing."""

    __tablename__ = "lease"

    thread_id: str = cascading_foreign_key("thread.thread_id", primary_key=True)
    fence: int = Field(default=0, sa_type=Integer)
    run_id: str | None = text_column(None)
    worker_id: str | None = text_column(None)


class SandboxRow(SQLModel, table=True, defer_build=True):
    __tablename__ = "sandbox"

    sandbox_id: str = text_primary_key()
    thread_id: str = cascading_foreign_key("thread.thread_id", index=True)
    provider: str = text_column()
    provider_ref: str = text_column()
    state: str = text_column("started")
    snapshot_ref: str | None = text_column(None)
    last_used_at: datetime = timestamp_column()


_TABLES = SQLModel.metadata.tables
threads: Table = _TABLES["thread"]
claimed_keys: Table = _TABLES["claimed_key"]
inbound_cursors: Table = _TABLES["inbound_cursor"]
thread_inputs: Table = _TABLES["thread_input"]
message_versions: Table = _TABLES["message_version"]
heard_messages: Table = _TABLES["heard_message"]
follow_modes: Table = _TABLES["follow_mode"]
feedback: Table = _TABLES["feedback"]
messages: Table = _TABLES["message"]
plans: Table = _TABLES["plan"]
runs: Table = _TABLES["run"]
tool_calls: Table = _TABLES["tool_call"]
run_events: Table = _TABLES["run_event"]
usage_days: Table = _TABLES["usage_day"]
usages: Table = _TABLES["usage"]
pending_asks: Table = _TABLES["pending_ask"]
renderings: Table = _TABLES["rendering"]
deliveries: Table = _TABLES["delivery"]
workers: Table = _TABLES["worker"]
leases: Table = _TABLES["lease"]
sandboxes: Table = _TABLES["sandbox"]
