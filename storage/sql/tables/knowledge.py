"""The tables of knowledge, beside those in `storage.sql.tables`, which imports them so that all are known together."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from sqlalchemy import BigInteger, Index, Integer, LargeBinary, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    SanitizedText,
    key,
    moment,
    part_of,
    partial_unique_index,
    words,
)
from storage.sql.full_text import FullTextTerms

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES


class KnowledgeEntryRow(SQLModel, table=True):
    """`thread_id` is set where the scope is a thread's. Readers see what is ready."""

    __tablename__ = "knowledge_entry"
    __table_args__ = (
        partial_unique_index(
            "uq_knowledge_entry_content",
            *("scope_kind", "owner_id", "content_hash"),
            condition="is_ready",
        ),
    )

    entry_id: str = key()
    scope_kind: str = words()
    owner_id: str = words()
    thread_id: str | None = Field(
        default=None,
        foreign_key="thread.thread_id",
        ondelete="CASCADE",
        index=True,
        sa_type=SanitizedText,
    )
    name: str = words()
    kind: str = words()
    title: str = words()
    content_hash: str = words()
    size_bytes: int = Field(default=0, sa_type=BigInteger)
    tokens: int = Field(default=0, sa_type=Integer)
    chunk_count: int = Field(default=0, sa_type=Integer)
    head: str = words()
    is_ready: bool = False
    created_at: datetime = moment()


class KnowledgeChunkRow(SQLModel, table=True):
    """`terms` is what the full-text index holds of the text: see `storage.sql.full_text`."""

    __tablename__ = "knowledge_chunk"
    __table_args__ = (Index("uq_knowledge_chunk_place", "entry_id", "number", unique=True),)

    chunk_id: int | None = Field(
        default=None, primary_key=True, sa_type=BigInteger().with_variant(Integer, "sqlite")
    )
    entry_id: str = part_of("knowledge_entry.entry_id")
    number: int = Field(sa_type=Integer)
    page: int | None = Field(default=None, sa_type=Integer)
    place: str = words()
    text: str = words()
    tokens: int = Field(default=0, sa_type=Integer)
    overlap: int = Field(default=0, sa_type=Integer)
    terms: str = Field(sa_type=FullTextTerms)


class KnowledgeVectorRow(SQLModel, table=True):
    """`vector`: float32, length 1; `signs`: one bit a dimension."""

    __tablename__ = "knowledge_vector"

    chunk_id: int = Field(
        foreign_key="knowledge_chunk.chunk_id",
        ondelete="CASCADE",
        primary_key=True,
        sa_type=BigInteger().with_variant(Integer, "sqlite"),
    )
    model: str = key()
    signs: bytes = Field(sa_type=LargeBinary)
    vector: bytes = Field(sa_type=LargeBinary)


METADATA = SQLModel.metadata
_tables = METADATA.tables
knowledge_entries: Table = _tables["knowledge_entry"]
knowledge_chunks: Table = _tables["knowledge_chunk"]
knowledge_vectors: Table = _tables["knowledge_vector"]
