"""Tables of what a workspace has besides its threads: installation, pairings, audit log, agents, knowledge."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from pydantic import JsonValue
from sqlalchemy import BigInteger, Float, Index, Integer, LargeBinary, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    JsonDocument,
    SanitizedText,
    UtcDateTime,
    cascading_foreign_key,
    nullable_timestamp_column,
    partial_unique_index,
    text_column,
    text_primary_key,
    timestamp_column,
)
from storage.sql.full_text import FullTextTerms

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES
SQLModel.model_config["defer_build"] = True  # rows are never validated, so pydantic's validators need not be built


class WorkspaceRow(SQLModel, table=True, defer_build=True):
    """`token` is stored encrypted."""

    __tablename__ = "workspace"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    token: str | None = text_column(None)
    settings: JsonValue = Field(default_factory=dict, sa_type=JsonDocument)


class PairingRow(SQLModel, table=True, defer_build=True):
    """A pairing request while `code_hash` is set, a pairing after that."""

    __tablename__ = "pairing"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    person_id: str = text_primary_key()
    person_name: str = text_column()
    code_hash: str | None = Field(default=None, sa_type=SanitizedText)
    asked_at: datetime = timestamp_column()
    expires_at: datetime = Field(sa_type=UtcDateTime)
    paired_at: datetime | None = nullable_timestamp_column()
    paired_by: str | None = text_column(None)


class BudgetLimitRow(SQLModel, table=True, defer_build=True):
    """A limit that an admin of the workspace has set in chat. Both amounts are None for no limit."""

    __tablename__ = "budget_limit"

    platform: str = text_primary_key()
    workspace_id: str = text_primary_key()
    scope: str = text_primary_key()
    usd: float | None = Field(default=None, sa_type=Float)
    tokens: int | None = Field(default=None, sa_type=BigInteger)


class TakeoverClaimRow(SQLModel, table=True, defer_build=True):
    """Refers to no other row: a claim stays until its link has expired."""

    __tablename__ = "takeover_claim"

    link_key: str = text_primary_key()
    thread_id: str = text_column()
    cookie_hash: str = text_column()
    expires_at: datetime = Field(sa_type=UtcDateTime)
    used_at: datetime = timestamp_column()
    ended_at: datetime | None = nullable_timestamp_column()


class AuditEntryRow(SQLModel, table=True, defer_build=True):
    """References no other row, so that it stays when the conversation is deleted."""

    __tablename__ = "audit_entry"
    __table_args__ = (Index("ix_audit_entry_workspace", "platform", "workspace_id", "entry_id"),)

    entry_id: str = text_primary_key()
    happened_at: datetime = timestamp_column()
    action: str = text_column()
    actor_id: str = text_column()
    actor_name: str = text_column()
    platform: str = text_column()
    workspace_id: str = text_column()
    channel_id: str = text_column()
    thread_key: str = text_column()
    thread_id: str = text_column()
    run_id: str = text_column()
    subject: str = text_column()


class AgentVersionRow(SQLModel, table=True, defer_build=True):
    """The definition of an agent from `created_at` on. Never changed; the newest has the highest number."""

    __tablename__ = "agent_version"
    __table_args__ = (Index("uq_agent_version_number", "agent_id", "number", unique=True),)

    agent_version_id: str = text_primary_key()
    agent_id: str = text_column()
    number: int = Field(sa_type=Integer)
    content_hash: str = text_column()
    definition: JsonValue = Field(sa_type=JsonDocument)
    created_at: datetime = timestamp_column()


class SavedAgentRow(SQLModel, table=True, defer_build=True):
    """The version that takes the place of an agent's file, because an admin has saved it or rolled back to it."""

    __tablename__ = "saved_agent"

    agent_id: str = text_primary_key()
    agent_version_id: str = text_column()


class KnowledgeEntryRow(SQLModel, table=True, defer_build=True):
    """`thread_id` is set if the scope is a thread. Readers see only ready entries."""

    __tablename__ = "knowledge_entry"
    __table_args__ = (
        partial_unique_index(
            "uq_knowledge_entry_content", *("scope_kind", "owner_id", "content_hash"), condition="is_ready"
        ),
    )

    entry_id: str = text_primary_key()
    scope_kind: str = text_column()
    owner_id: str = text_column()
    thread_id: str | None = Field(
        default=None, foreign_key="thread.thread_id", ondelete="CASCADE", index=True, sa_type=SanitizedText
    )
    name: str = text_column()
    kind: str = text_column()
    title: str = text_column()
    content_hash: str = text_column()
    size_bytes: int = Field(default=0, sa_type=BigInteger)
    tokens: int = Field(default=0, sa_type=Integer)
    chunk_count: int = Field(default=0, sa_type=Integer)
    is_ready: bool = False
    created_at: datetime = timestamp_column()


class KnowledgeChunkRow(SQLModel, table=True, defer_build=True):
    """`terms` are the search terms of the text: see `storage.sql.full_text`."""

    __tablename__ = "knowledge_chunk"
    __table_args__ = (Index("uq_knowledge_chunk_place", "entry_id", "number", unique=True),)

    chunk_id: int | None = Field(default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer, "sqlite"))
    entry_id: str = cascading_foreign_key("knowledge_entry.entry_id")
    number: int = Field(sa_type=Integer)
    page: int | None = Field(default=None, sa_type=Integer)
    place: str = text_column()
    text: str = text_column()
    tokens: int = Field(default=0, sa_type=Integer)
    overlap: int = Field(default=0, sa_type=Integer)
    terms: str = Field(sa_type=FullTextTerms)


class KnowledgeVectorRow(SQLModel, table=True, defer_build=True):
    """`vector`: float32, scaled to length 1. `signs`: one bit per dimension."""

    __tablename__ = "knowledge_vector"

    chunk_id: int = Field(
        foreign_key="knowledge_chunk.chunk_id",
        ondelete="CASCADE",
        primary_key=True,
        sa_type=BigInteger().with_variant(Integer, "sqlite"),
    )
    model: str = text_primary_key()
    signs: bytes = Field(sa_type=LargeBinary)
    vector: bytes = Field(sa_type=LargeBinary)


_TABLES = SQLModel.metadata.tables
workspaces: Table = _TABLES["workspace"]
pairings: Table = _TABLES["pairing"]
budget_limits: Table = _TABLES["budget_limit"]
takeover_claims: Table = SQLModel.metadata.tables["takeover_claim"]
audit_entries: Table = _TABLES["audit_entry"]
agent_versions: Table = _TABLES["agent_version"]
saved_agents: Table = _TABLES["saved_agent"]
knowledge_entries: Table = _TABLES["knowledge_entry"]
knowledge_chunks: Table = _TABLES["knowledge_chunk"]
knowledge_vectors: Table = _TABLES["knowledge_vector"]
