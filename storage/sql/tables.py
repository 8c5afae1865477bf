"""All tables. Rows stay in this package: `storage.sql.rows` converts them to the types of core and back."""

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    JsonDocument,
    SanitizedText,
    UtcDateTime,
    cascading_foreign_key,
    keys,
    nullable_foreign_key,
    nullable_texts,
    nullable_timestamps,
    partial_unique_index,
    texts,
    timestamps,
)
from storage.sql.full_text import FullTextTerms

METADATA = MetaData(naming_convention=CONSTRAINT_NAMES)
_ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")
_ADDRESS = ("platform", "workspace_id", "channel_id", "thread_key")

threads = Table(
    "thread",
    METADATA,
    *keys("thread_id"),
    *texts(*_ADDRESS),
    *texts("state", default="idle"),
    *texts("title"),
    *nullable_texts("agent_id", "sandbox_id"),
    Column("next_sequence", Integer, nullable=False, default=1),
    Column("earlier_authors", JsonDocument),
    *timestamps("created_at", "last_activity_at"),
    *nullable_timestamps("unbound_at"),
    partial_unique_index("uq_thread_bound_address", *_ADDRESS, condition="unbound_at IS NULL"),
    Index("ix_thread_activity", "last_activity_at", "thread_id"),
    Index("ix_thread_place", "platform", "workspace_id", "channel_id"),
)
"""An address is bound to at most one thread at a time."""

claimed_keys = Table(
    "claimed_key",
    METADATA,
    *keys("dedupe_key"),
    nullable_foreign_key("thread_id", "thread.thread_id"),
    *nullable_texts("run_id"),
    *timestamps("claimed_at", index=True),
)
"""A claimed dedupe key. It outlives its thread, so that a late redelivery is still recognised."""

inbound_cursors = Table("inbound_cursor", METADATA, *keys("platform", "scope"), *texts("cursor"))

thread_inputs = Table(
    "thread_input",
    METADATA,
    *keys("input_id"),
    cascading_foreign_key("thread_id", "thread.thread_id"),
    Column("dedupe_key", SanitizedText, nullable=False, unique=True),
    Column("position", Integer, nullable=False),
    *texts("kind", "author_id", "author_name"),
    *nullable_texts("author_time_zone"),
    *texts("text"),
    Column("files", JsonDocument, nullable=False, default=list),
    *texts("message_ref"),
    *timestamps("sent_at"),
    *nullable_texts("taken_by"),
    Column("attention", SanitizedText, nullable=False, server_default="addressed"),
    Index("ix_thread_input_order", "thread_id", "position", unique=True),
)
"""`taken_by` is the run that took the input up; `position` orders the inputs of a thread."""

heard_messages = Table(
    "heard_message",
    METADATA,
    cascading_foreign_key("thread_id", "thread.thread_id", primary_key=True),
    *keys("message_ref"),
    *texts("author_id", "author_name", "text"),
    Column("files", JsonDocument, nullable=False, default=list),
    *timestamps("sent_at"),
    *nullable_texts("read_by"),
)
"""A message in an agent's thread that people wrote to each other. `read_by` is the run that has read it."""

message_versions = Table(
    "message_version",
    METADATA,
    *keys("platform", "workspace_id", "channel_id", "message_ref"),
    Column("thread_key", SanitizedText, nullable=False, server_default=""),
    *texts("author_id"),
    *nullable_texts("text"),
    Column("is_deleted", Boolean, nullable=False, default=False),
    *timestamps("sent_at"),
)
"""The newest edit of a message, or its deletion. `text` is null if it was deleted, or is not for the agent."""

follow_modes = Table("follow_mode", METADATA, *keys(*_ADDRESS), *texts("mode"), *timestamps("set_at"))
"""The follow mode that people chose for a thread, or for a whole channel if `thread_key` is empty."""

messages = Table(
    "message",
    METADATA,
    *keys("message_id"),
    cascading_foreign_key("thread_id", "thread.thread_id"),
    *nullable_texts("run_id"),
    Column("sequence", Integer, nullable=False),
    *texts("type"),
    Column("is_llm_message", Boolean, nullable=False),
    Column("content", JsonDocument, nullable=False),
    Column("metadata", JsonDocument, nullable=False),
    Column("token_count", Integer, nullable=False, default=0),
    *nullable_texts("agent_id", "agent_version_id"),
    *timestamps("created_at"),
    Index("uq_message_order", "thread_id", "sequence", unique=True),
)

plans = Table(
    "plan",
    METADATA,
    cascading_foreign_key("thread_id", "thread.thread_id", primary_key=True),
    *keys("plan_id"),
    Column("content", JsonDocument, nullable=False),
    Column("is_active", Boolean, nullable=False, default=False),
    *timestamps("created_at"),
)
"""`content` is the plan as JSON. At most one plan of a thread is active."""

runs = Table(
    "run",
    METADATA,
    *keys("run_id"),
    cascading_foreign_key("thread_id", "thread.thread_id"),
    Column("number", Integer, nullable=False, server_default="0"),
    *texts("status", default="queued"),
    Column("attempt", Integer, nullable=False, default=0),
    Column("deaths", Integer, nullable=False, server_default="0"),
    *nullable_texts("requester_id", "requester_name", "requester_time_zone"),
    *texts("request_ref", "model"),
    *nullable_texts("agent_id", "agent_version_id"),
    Column("attention", SanitizedText, nullable=False, server_default="addressed"),
    Column("stop_requested", Boolean, nullable=False, default=False),
    *nullable_timestamps("stopped_until"),
    Column("reserved_tokens", BigInteger, nullable=False, server_default="0"),
    Column("reserved_microdollars", BigInteger, nullable=False, server_default="0"),
    *nullable_texts("finish_reason", "error"),
    *nullable_timestamps("requested_at"),
    *timestamps("created_at"),
    *nullable_timestamps("requeued_at", "started_at", "finished_at"),
    partial_unique_index("uq_run_active", "thread_id", condition="status IN ('queued', 'running')"),
    Index("uq_run_number", "thread_id", "number", unique=True),
    Index("ix_run_status", "status"),
    Index("ix_run_requester_id", "requester_id"),
)
"""`number` is the place among the thread's runs, from 1. `deaths`: how many workers died in a row while they ran
it, since its last finished turn. `requeued_at`: when it was last queued again after it had begun.
`reserved_tokens` and `reserved_microdollars` are what its model call may cost, 0 between calls."""

tool_calls = Table(
    "tool_call",
    METADATA,
    Column("position", _ROW_NUMBER, primary_key=True),
    cascading_foreign_key("run_id", "run.run_id"),
    *texts("turn_id"),
    Column("index", Integer, nullable=False),
    *texts("call_id", "name"),
    Column("arguments", JsonDocument, nullable=False),
    *texts("raw", "assistant_message_id"),
    *texts("state", default="started"),
    Column("result", JsonDocument),
    Column("metadata", JsonDocument, nullable=False),
    Index("uq_tool_call_place", "run_id", "turn_id", "index", unique=True),
)
"""`position` is assigned by the database, in insert order."""

run_events = Table(
    "run_event",
    METADATA,
    cascading_foreign_key("run_id", "run.run_id", primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("n", Integer, primary_key=True),
    *texts("thread_id"),
    *nullable_texts("body", "turn_id", "message_id", "agent_id", "agent_version_id"),
    *timestamps("created_at"),
)
"""`body` is the event as JSON, and null for `MessageAdded`, whose message is read from its own table."""

usages = Table(
    "usage",
    METADATA,
    *keys("usage_id"),
    nullable_foreign_key("thread_id", "thread.thread_id"),
    nullable_foreign_key("run_id", "run.run_id"),
    *texts("turn_id", "platform", "workspace_id", "channel_id"),
    *nullable_texts("user_id"),
    *texts("model"),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("cached_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("cost_usd", Float, nullable=False, default=0.0),
    Column("estimated_usd", Float, nullable=False, default=0.0),
    *timestamps("created_at"),
    Index("ix_usage_person", "platform", "workspace_id", "user_id"),
)
"""The ledger: who spent what, where, on which model. It outlives thread and run, so that budgets hold.

`estimated_usd` is the part of the cost that was computed from a price."""

usage_days = Table(
    "usage_day",
    METADATA,
    *keys("platform", "workspace_id", "day", "channel_id", "user_id"),
    Column("cost_usd", Float, nullable=False, default=0.0),
    Column("tokens", BigInteger, nullable=False, default=0),
    Column("unpriced_tokens", BigInteger, nullable=False, default=0),
)
"""What a person or an app has spent in one channel on one UTC day, as far as daily budgets need it.

`day` is in ISO format. `user_id` is empty for work without a person. `unpriced_tokens` are those of calls whose
cost is unknown."""

pending_asks = Table(
    "pending_ask",
    METADATA,
    *keys("ask_id"),
    cascading_foreign_key("thread_id", "thread.thread_id"),
    Column("number", Integer, nullable=False, server_default="0"),
    cascading_foreign_key("run_id", "run.run_id", index=True),
    *texts("kind", default="question"),
    *texts("subject", "text"),
    Column("options", JsonDocument, nullable=False, default=list),
    *texts("state", default="open"),
    *nullable_texts("answer", "answered_by_id", "answered_by_name"),
    *timestamps("created_at"),
    *nullable_timestamps("answered_at", "expires_at"),
    partial_unique_index("uq_pending_ask_open", "thread_id", condition="state = 'open'"),
    Index("uq_pending_ask_number", "thread_id", "number", unique=True),
)
"""`number` is the place among the thread's questions, from 1."""

renderings = Table(
    "rendering",
    METADATA,
    cascading_foreign_key("run_id", "run.run_id", primary_key=True),
    Column("is_open", Boolean, nullable=False, default=True),
    Column("fence", Integer, nullable=False, default=0),
    *nullable_texts("worker_id"),
    partial_unique_index("uq_rendering_open", "run_id", condition="is_open"),
)
"""The worker that posts for a run in its thread; `is_open` while something is left to post."""

deliveries = Table(
    "delivery",
    METADATA,
    *keys("delivery_id"),
    cascading_foreign_key("run_id", "run.run_id"),
    *texts("slot"),
    Column("ordinal", Integer, nullable=False, default=0),
    Column("body", JsonDocument, nullable=False),
    *texts("state", default="pending"),
    Column("is_outdated", Boolean, nullable=False, default=False),
    *nullable_texts("message_ref", "error"),
    Index("uq_delivery_place", "run_id", "slot", "ordinal", unique=True),
)
"""`is_outdated`: its content changed while its first post may have been in flight."""

feedback = Table(
    "feedback",
    METADATA,
    *keys("run_id", "person_id"),
    *texts("person_name"),
    cascading_foreign_key("thread_id", "thread.thread_id", index=True),
    Column("is_good", Boolean, nullable=False),
    *texts("reason"),
    *timestamps("given_at"),
)
"""What a person thinks of the answer of a run."""

workers = Table("worker", METADATA, *keys("worker_id"), Column("heartbeat_at", Float, nullable=False))
"""`heartbeat_at`: seconds since the epoch by the database's clock."""

leases = Table(
    "lease",
    METADATA,
    cascading_foreign_key("thread_id", "thread.thread_id", primary_key=True),
    Column("fence", Integer, nullable=False, default=0),
    *nullable_texts("run_id", "worker_id"),
)
"""The row stays when the lease is free, because the fence must keep growing."""

sandboxes = Table(
    "sandbox",
    METADATA,
    *keys("sandbox_id"),
    cascading_foreign_key("thread_id", "thread.thread_id", index=True),
    *texts("provider", "provider_ref"),
    *texts("state", default="started"),
    *nullable_texts("snapshot_ref"),
    *timestamps("last_used_at"),
)

schedules = Table(
    "schedule",
    METADATA,
    *keys("schedule_id"),
    *texts(*_ADDRESS),
    nullable_foreign_key("thread_id", "thread.thread_id"),
    *texts("owner_id", "owner_name"),
    *nullable_texts("agent_id"),
    *texts("task", "rule", "next_local", "time_zone"),
    Column("due_at", UtcDateTime, nullable=False),
    *texts("state", default="active"),
    *texts("problem"),
    *timestamps("armed_at"),
    Index("ix_schedule_due", "state", "due_at"),
    Index("ix_schedule_place", "platform", "workspace_id", "channel_id"),
)
"""`next_local` is the local time, in ISO 8601, that is due at `due_at`, with a `*` if it is the second time that
the clocks show it. That of a trigger, which is never due, is empty."""

firings = Table(
    "firing",
    METADATA,
    *keys("firing_id"),
    cascading_foreign_key("schedule_id", "schedule.schedule_id"),
    Column("due_at", UtcDateTime, nullable=False),
    *texts("state", default="pending"),
    Column("missed", Integer, nullable=False, default=0),
    *texts("message_ref"),
    *nullable_texts("run_id"),
    *texts("note", "event_key", "thread_key", "group_key", "title", "body"),
    *timestamps("claimed_until"),
    Index("uq_firing_event", "schedule_id", "event_key", unique=True),
)
"""A schedule fires once at each time or event. A process works on a pending firing until `claimed_until`."""

workspaces = Table(
    "workspace",
    METADATA,
    *keys("platform", "workspace_id"),
    *nullable_texts("token"),
    Column("settings", JsonDocument, nullable=False, default=dict),
)
"""`token` is stored encrypted."""

pairings = Table(
    "pairing",
    METADATA,
    *keys("platform", "workspace_id", "person_id"),
    *texts("person_name"),
    *nullable_texts("code_hash"),
    *timestamps("asked_at"),
    Column("expires_at", UtcDateTime, nullable=False),
    *nullable_timestamps("paired_at"),
    *nullable_texts("paired_by"),
)
"""A pairing request while `code_hash` is set, a pairing after that."""

budget_limits = Table(
    "budget_limit",
    METADATA,
    *keys("platform", "workspace_id", "scope"),
    Column("usd", Float),
    Column("tokens", BigInteger),
)
"""A limit that an admin of the workspace has set in chat. Both amounts are None for no limit."""

takeover_claims = Table(
    "takeover_claim",
    METADATA,
    *keys("link_key"),
    *texts("thread_id", "cookie_hash"),
    Column("expires_at", UtcDateTime, nullable=False),
    *timestamps("used_at"),
    *nullable_timestamps("ended_at"),
)
"""Refers to no other row: a claim stays until its link has expired."""

audit_entries = Table(
    "audit_entry",
    METADATA,
    *keys("entry_id"),
    *timestamps("happened_at"),
    *texts(
        "action",
        "actor_id",
        "actor_name",
        "platform",
        "workspace_id",
        "channel_id",
        "thread_key",
        "thread_id",
        "run_id",
        "subject",
    ),
    Index("ix_audit_entry_workspace", "platform", "workspace_id", "entry_id"),
)
"""References no other row, so that it stays when the conversation is deleted."""

agent_versions = Table(
    "agent_version",
    METADATA,
    *keys("agent_version_id"),
    *texts("agent_id"),
    Column("number", Integer, nullable=False),
    *texts("content_hash"),
    Column("definition", JsonDocument, nullable=False),
    *timestamps("created_at"),
    Index("uq_agent_version_number", "agent_id", "number", unique=True),
)
"""The definition of an agent from `created_at` on. Never changed; the newest has the highest number."""

saved_agents = Table("saved_agent", METADATA, *keys("agent_id"), *texts("agent_version_id"))
"""The version that takes the place of an agent's file, because an admin has saved it or rolled back to it."""

knowledge_entries = Table(
    "knowledge_entry",
    METADATA,
    *keys("entry_id"),
    *texts("scope_kind", "owner_id"),
    Column("thread_id", SanitizedText, ForeignKey("thread.thread_id", ondelete="CASCADE"), index=True),
    *texts("name", "kind", "title", "content_hash"),
    Column("size_bytes", BigInteger, nullable=False, default=0),
    Column("tokens", Integer, nullable=False, default=0),
    Column("chunk_count", Integer, nullable=False, default=0),
    *texts("head"),
    Column("is_ready", Boolean, nullable=False, default=False),
    *timestamps("created_at"),
    partial_unique_index("uq_knowledge_entry_content", "scope_kind", "owner_id", "content_hash", condition="is_ready"),
)
"""`thread_id` is set if the scope is a thread. Readers see only ready entries."""

knowledge_chunks = Table(
    "knowledge_chunk",
    METADATA,
    Column("chunk_id", _ROW_NUMBER, primary_key=True),
    cascading_foreign_key("entry_id", "knowledge_entry.entry_id"),
    Column("number", Integer, nullable=False),
    Column("page", Integer),
    *texts("place", "text"),
    Column("tokens", Integer, nullable=False, default=0),
    Column("overlap", Integer, nullable=False, default=0),
    Column("terms", FullTextTerms, nullable=False),
    Index("uq_knowledge_chunk_place", "entry_id", "number", unique=True),
)
"""`terms` are the search terms of the text: see `storage.sql.full_text`."""

knowledge_vectors = Table(
    "knowledge_vector",
    METADATA,
    Column("chunk_id", _ROW_NUMBER, ForeignKey("knowledge_chunk.chunk_id", ondelete="CASCADE"), primary_key=True),
    *keys("model"),
    Column("signs", LargeBinary, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
"""`vector`: float32, scaled to length 1. `signs`: one bit per dimension."""
