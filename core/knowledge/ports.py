"""The ports of the knowledge base: storage and search of entries and chunks, and embeddings."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.domain.threads import Usage
from core.knowledge.chunk import Chunk
from core.knowledge.document import DocumentKind
from core.knowledge.terms import Term

HEAD_BYTES = 100_000
"""How much of an entry's text is stored unsplit, for `render_texts`."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of entries: an agent or a thread. `reading` holds documents that a thread asked about without adding
    them to its knowledge, and its own conversation. Forgetting a thread deletes both of its scopes.
    """

    kind: Literal["agent", "thread", "reading"]
    owner_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """A new entry. `content_hash` is the SHA-256 of the file's bytes and identifies the entry, not its name."""

    name: str
    kind: DocumentKind
    title: str
    content_hash: str
    size_bytes: int
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeEntry:
    """`tokens` is the sum over the chunks."""

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
    """A chunk that a search found. A greater score is better; scores of two searches do not compare."""

    entry_id: str
    chunk: Chunk
    score: float


class KnowledgeStore(Protocol):
    """Entries with their chunks, and the full-text index over these. Raises StorageUnavailable."""

    async def add(self, scope: Scope, draft: EntryDraft, chunks: Iterable[Chunk]) -> KnowledgeEntry:
        """Stores and indexes the chunks, numbered from 0. Readers see all of them or none.

        Returns the existing entry if the scope has this content; replaces an entry of the same name with other content.
        Writes in batches, so that no other writer waits long.
        """
        ...

    async def entries(self, scopes: Sequence[Scope]) -> tuple[KnowledgeEntry, ...]:
        """Newest first."""
        ...

    async def head(self, entry_id: str) -> str:
        """The first HEAD_BYTES of the text; empty for an unknown entry."""
        ...

    async def remove(self, scope: Scope, entry_id: str) -> bool:
        """Removes the entry with its chunks and embeddings. Returns False if the scope has no such entry."""
        ...

    async def chunks(
        self, entry_id: str, *, first: int = 0, limit: int | None = None
    ) -> tuple[Chunk, ...]:
        """Returns chunks in document order, starting at number `first`."""
        ...

    async def search(
        self, terms: Sequence[Term], entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """Returns the chunks of these entries that hold any of the terms, best first (rare terms count more, long
        chunks less)."""
        ...


class KnowledgeVectors(Protocol):
    """Embeddings of chunks, kept apart by model. Raises StorageUnavailable."""

    async def put(self, entry_id: str, model: str, vectors: Sequence[Sequence[float]]) -> None:
        """Stores one vector per chunk of the entry, in order. Idempotent."""
        ...

    async def has(self, entry_id: str, model: str) -> bool:
        """Returns whether the entry has vectors of this model."""
        ...

    async def nearest(
        self, vector: Sequence[float], model: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """Returns the chunks with the greatest cosine similarity, best first. Skips vectors of another length."""
        ...


class Embedder(Protocol):
    """An embedding model."""

    @property
    def model(self) -> str: ...

    async def embed(
        self, texts: Sequence[str], *, spent: Callable[[str, Usage], object]
    ) -> list[list[float]]:
        """Returns one vector per text, all of one length. Calls `spent` with the model and usage. Raises ModelError."""
        ...


Ask = Callable[[str], Awaitable[str]]
"""Asks a model one question and returns the whole answer. Raises ModelError, BudgetExceeded."""
