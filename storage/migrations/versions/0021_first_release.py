"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from storage.sql.full_text import POSTGRESQL_INDEX, SQLITE_INDEX

revision = "0021"
"""The revision of databases that were made shortly before the first release, which have the same tables."""
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    terms = postgresql.TSVECTOR() if is_postgresql else sa.Text()
    op.create_table(
        "agent_version",
        sa.Column("agent_version_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("agent_version_id", name="pk_agent_version"),
    )
    op.create_index("uq_agent_version_number", "agent_version", ["agent_id", "number"], unique=True)
    op.create_table(
        "audit_entry",
        sa.Column("entry_id", sa.Text(), nullable=False),
        sa.Column("happened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("thread_key", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("entry_id", name="pk_audit_entry"),
    )
    op.create_index("ix_audit_entry_workspace", "audit_entry", ["platform", "workspace_id", "entry_id"], unique=False)
    op.create_table(
        "budget_limit",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("platform", "workspace_id", "scope", name="pk_budget_limit"),
    )
    op.create_table(
        "follow_mode",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("thread_key", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("platform", "workspace_id", "channel_id", "thread_key", name="pk_follow_mode"),
    )
    op.create_table(
        "inbound_cursor",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "scope", name="pk_inbound_cursor"),
    )
    op.create_table(
        "message_version",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=False),
        sa.Column("thread_key", sa.Text(), server_default="", nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("is_deleted", sa.Boolean(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("platform", "workspace_id", "channel_id", "message_ref", name="pk_message_version"),
    )
    op.create_table(
        "pairing",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Text(), nullable=False),
        sa.Column("person_name", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paired_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("platform", "workspace_id", "person_id", name="pk_pairing"),
    )
    op.create_table(
        "saved_agent",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name="pk_saved_agent"),
    )
    op.create_table(
        "takeover_claim",
        sa.Column("link_key", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("cookie_hash", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("link_key", name="pk_takeover_claim"),
    )
    op.create_table(
        "thread",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("thread_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("sandbox_id", sa.Text(), nullable=True),
        sa.Column("next_sequence", sa.Integer(), nullable=False),
        sa.Column("earlier_authors", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_activity_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("unbound_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("thread_id", name="pk_thread"),
    )
    op.create_index(
        "uq_thread_bound_address",
        "thread",
        ["platform", "workspace_id", "channel_id", "thread_key"],
        unique=True,
        sqlite_where=sa.text("unbound_at IS NULL"),
        postgresql_where=sa.text("unbound_at IS NULL"),
    )
    op.create_table(
        "usage_day",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "workspace_id", "day", "channel_id", "user_id", name="pk_usage_day"),
    )
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("heartbeat_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker"),
    )
    op.create_table(
        "workspace",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "workspace_id", name="pk_workspace"),
    )
    op.create_table(
        "claimed_key",
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_claimed_key_thread_id", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("dedupe_key", name="pk_claimed_key"),
    )
    op.create_index("ix_claimed_key_claimed_at", "claimed_key", ["claimed_at"], unique=False)
    op.create_index("ix_claimed_key_thread_id", "claimed_key", ["thread_id"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Text(), nullable=False),
        sa.Column("person_name", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("is_good", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_feedback_thread_id_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "person_id", name="pk_feedback"),
    )
    op.create_index("ix_feedback_thread_id", "feedback", ["thread_id"], unique=False)
    op.create_table(
        "heard_message",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_heard_message_thread_id_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_id", "message_ref", name="pk_heard_message"),
    )
    op.create_table(
        "knowledge_entry",
        sa.Column("entry_id", sa.Text(), nullable=False),
        sa.Column("scope_kind", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("is_ready", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_knowledge_entry_thread_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("entry_id", name="pk_knowledge_entry"),
    )
    op.create_index("ix_knowledge_entry_thread_id", "knowledge_entry", ["thread_id"], unique=False)
    op.create_index(
        "uq_knowledge_entry_content",
        "knowledge_entry",
        ["scope_kind", "owner_id", "content_hash"],
        unique=True,
        sqlite_where=sa.text("is_ready"),
        postgresql_where=sa.text("is_ready"),
    )
    op.create_table(
        "lease",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_lease_thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("thread_id", name="pk_lease"),
    )
    op.create_table(
        "message",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("is_llm_message", sa.Boolean(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("agent_version_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_message_thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("message_id", name="pk_message"),
    )
    op.create_index("uq_message_order", "message", ["thread_id", "sequence"], unique=True)
    op.create_table(
        "plan",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("plan_id", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_plan_thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("thread_id", "plan_id", name="pk_plan"),
    )
    op.create_table(
        "run",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), server_default="0", nullable=False),
        sa.Column("requester_id", sa.Text(), nullable=True),
        sa.Column("requester_name", sa.Text(), nullable=True),
        sa.Column("request_ref", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("agent_version_id", sa.Text(), nullable=True),
        sa.Column("attention", sa.Text(), server_default="addressed", nullable=False),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.Column("stopped_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reserved_microdollars", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requeued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_run_thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run"),
    )
    op.create_index("ix_run_requester_id", "run", ["requester_id"], unique=False)
    op.create_index("ix_run_status", "run", ["status"], unique=False)
    op.create_index(
        "uq_run_active",
        "run",
        ["thread_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'running')"),
    )
    op.create_index("uq_run_number", "run", ["thread_id", "number"], unique=True)
    op.create_table(
        "sandbox",
        sa.Column("sandbox_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("snapshot_ref", sa.Text(), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_sandbox_thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sandbox_id", name="pk_sandbox"),
    )
    op.create_index("ix_sandbox_thread_id", "sandbox", ["thread_id"], unique=False)
    op.create_table(
        "thread_input",
        sa.Column("input_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=True),
        sa.Column("attention", sa.Text(), server_default="addressed", nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_thread_input_thread_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("input_id", name="pk_thread_input"),
        sa.UniqueConstraint("dedupe_key", name="uq_thread_input_dedupe_key"),
    )
    op.create_index("ix_thread_input_order", "thread_input", ["thread_id", "position"], unique=True)
    op.create_table(
        "delivery",
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_outdated", sa.Boolean(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_delivery_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("delivery_id", name="pk_delivery"),
    )
    op.create_index("uq_delivery_place", "delivery", ["run_id", "slot", "ordinal"], unique=True)
    op.create_table(
        "knowledge_chunk",
        sa.Column("chunk_id", KEY, nullable=False),
        sa.Column("entry_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("page", sa.Integer(), nullable=True),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("overlap", sa.Integer(), nullable=False),
        sa.Column("terms", terms, nullable=False),
        sa.ForeignKeyConstraint(
            ["entry_id"], ["knowledge_entry.entry_id"], name="fk_knowledge_chunk_entry_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("chunk_id", name="pk_knowledge_chunk"),
    )
    op.create_index("uq_knowledge_chunk_place", "knowledge_chunk", ["entry_id", "number"], unique=True)
    op.create_table(
        "pending_ask",
        sa.Column("ask_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="question", nullable=False),
        sa.Column("subject", sa.Text(), server_default="", nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answered_by_id", sa.Text(), nullable=True),
        sa.Column("answered_by_name", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_pending_ask_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["thread.thread_id"], name="fk_pending_ask_thread_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ask_id", name="pk_pending_ask"),
    )
    op.create_index("ix_pending_ask_run_id", "pending_ask", ["run_id"], unique=False)
    op.create_index("uq_pending_ask_number", "pending_ask", ["thread_id", "number"], unique=True)
    op.create_index(
        "uq_pending_ask_open",
        "pending_ask",
        ["thread_id"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "rendering",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_rendering_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_rendering"),
    )
    op.create_index(
        "uq_rendering_open",
        "rendering",
        ["run_id"],
        unique=True,
        sqlite_where=sa.text("is_open"),
        postgresql_where=sa.text("is_open"),
    )
    op.create_table(
        "run_event",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("message_id", sa.Text(), nullable=True),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("agent_version_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_run_event_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "n", name="pk_run_event"),
    )
    op.create_table(
        "tool_call",
        sa.Column("position", KEY, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("assistant_message_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_tool_call_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("position", name="pk_tool_call"),
    )
    op.create_index("uq_tool_call_place", "tool_call", ["run_id", "turn_id", "index"], unique=True)
    op.create_table(
        "usage",
        sa.Column("usage_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("estimated_usd", sa.Float(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_usage_run_id", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_usage_thread_id", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("usage_id", name="pk_usage"),
    )
    op.create_index("ix_usage_person", "usage", ["platform", "workspace_id", "user_id"], unique=False)
    op.create_index("ix_usage_run_id", "usage", ["run_id"], unique=False)
    op.create_index("ix_usage_thread_id", "usage", ["thread_id"], unique=False)
    op.create_table(
        "knowledge_vector",
        sa.Column("chunk_id", KEY, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("signs", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["chunk_id"], ["knowledge_chunk.chunk_id"], name="fk_knowledge_vector_chunk_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("chunk_id", "model", name="pk_knowledge_vector"),
    )
    for statement in POSTGRESQL_INDEX if is_postgresql else SQLITE_INDEX:
        op.execute(statement)
