"""The interfaces of the knowledge base to storage, full-text search, and embedding models."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.domain.threads import Usage
from core.knowledge.chunk import Chunk
from core.knowledge.document import DocumentKind
from core.knowledge.terms import Term

ScopeKind = Literal["agent", "upload", "thread", "reading"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of entries: an agent or a thread. An agent's `upload` scope holds documents that were added over the
    HTTP API, and its `agent` scope those of its own file. A thread's `reading` scope holds documents that were asked
    about without adding them to its knowledge, and its own conversation. Deleting a thread deletes both its scopes."""

    kind: ScopeKind
    owner_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """A new entry. It is identified by `content_hash`, the SHA-256 of the file's bytes, and not by its name."""

    name: str
    kind: DocumentKind
    title: str
    content_hash: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeEntry:
    """A stored document. `tokens` is the sum over its chunks."""

    entry_id: str
    scope: Scope
    name: str
    kind: DocumentKind
    title: str
    content_hash: str
    size_bytes: int
    tokens: int
    chunk_count: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a search found. A higher score is better. Scores of different searches are not comparable."""

    entry_id: str
    chunk: Chunk
    score: float


class KnowledgeStore(Protocol):
    """Stores entries with their chunks in a full-text index. Every method raises StorageUnavailable."""

    async def add(self, scope: Scope, draft: EntryDraft, chunks: Iterable[Chunk]) -> KnowledgeEntry:
        """Stores an entry and indexes its chunks, numbered from 0. Readers see all chunks or none.

        Returns the existing entry if the scope already has the content. Replaces an entry that has the same name but
        other content. Writes in batches, so that no other writer waits long."""
        ...

    async def entries(self, scopes: Sequence[Scope]) -> tuple[KnowledgeEntry, ...]:
        """Returns the entries of the scopes, newest first."""
        ...

    async def rename(self, scope: Scope, entry_id: str, name: str) -> None:
        """Gives the entry this name, and removes other entries of the scope that have it. Idempotent."""
        ...

    async def remove(self, scope: Scope, entry_id: str) -> bool:
        """Removes the entry with its chunks and embeddings. Returns False if the scope has no such entry."""
        ...

    async def chunks(self, entry_id: str, *, limit: int | None = None) -> tuple[Chunk, ...]:
        """Returns the chunks, or the first of them, in document order."""
        ...

    async def search(self, terms: Sequence[Term], entry_ids: Sequence[str], *, limit: int) -> tuple[Hit, ...]:
        """Returns the chunks of these entries that hold any of the terms, best first (rare terms count more, long
        chunks less)."""
        ...


class KnowledgeVectors(Protocol):
    """Stores embeddings of chunks, separately for each model. Every method raises StorageUnavailable."""

    async def insert_missing(self, entry_id: str, model: str, vectors: Sequence[Sequence[float]]) -> None:
        """Stores one vector per chunk of the entry, in the order of the chunks. Idempotent."""
        ...

    async def has_vectors(self, entry_id: str, model: str) -> bool: ...

    async def nearest(
        self, vector: Sequence[float], model: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """Returns the chunks with the greatest cosine similarity, best first. Skips vectors of a different length."""
        ...


class Embedder(Protocol):
    """An embedding model."""

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, spent: Callable[[str, Usage], object]) -> list[list[float]]:
        """Returns one vector per text, of equal length. Calls `spent` with the model and usage. Raises ModelError."""
        ...


Ask = Callable[[str], Awaitable[str]]
"""Asks a model one question and returns the whole answer. Raises ModelError, BudgetExceeded."""
