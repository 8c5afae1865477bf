"""The ports of knowledge: where entries and their chunks are kept and searched, and who turns text into vectors."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.domain.threads import Usage
from core.knowledge.chunk import Chunk
from core.knowledge.document import DocumentKind
from core.knowledge.terms import Term

HEAD_BYTES = 100_000
"""How much of an entry's text is kept as it is, for the direct form."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose knowledge it is: an agent's or a thread's. `reading` holds what was read in a thread without being part of
    its knowledge: documents asked about, the thread's own dialogue. What hangs on a thread goes when it is forgotten.
    """

    kind: Literal["agent", "thread", "reading"]
    owner_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """`content_hash` is SHA-256 of the file's bytes: another content is another entry, whatever its name."""

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
        """Keeps and indexes the chunks, numbered from 0; seen by readers only as a whole.

        The same content in the scope again: the entry that is there. Another content under a name that is there: takes
        the place of that entry. Chunks are taken in batches, so that no writer waits long.
        """
        ...

    async def entries(self, scopes: Sequence[Scope]) -> tuple[KnowledgeEntry, ...]:
        """Newest first."""
        ...

    async def head(self, entry_id: str) -> str:
        """The first HEAD_BYTES of the text; empty for an unknown entry."""
        ...

    async def remove(self, scope: Scope, entry_id: str) -> bool:
        """With all that hangs on it. False: the scope has no such entry."""
        ...

    async def chunks(
        self, entry_id: str, *, first: int = 0, limit: int | None = None
    ) -> tuple[Chunk, ...]:
        """In document order from the number `first` on."""
        ...

    async def search(
        self, terms: Sequence[Term], entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """The chunks of these entries that hold some of the terms, best first (rare terms count more, long chunks
        less)."""
        ...


class KnowledgeVectors(Protocol):
    """Vectors of chunks. Those of different models never meet. Raises StorageUnavailable."""

    async def put(self, entry_id: str, model: str, vectors: Sequence[Sequence[float]]) -> None:
        """One vector per chunk of the entry, in order; again changes nothing."""
        ...

    async def has(self, entry_id: str, model: str) -> bool:
        """Whether the entry's vectors of this model are there."""
        ...

    async def nearest(
        self, vector: Sequence[float], model: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """The chunks with the greatest cosine to the vector, best first. Vectors of another length are left out."""
        ...


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def model(self) -> str: ...

    async def embed(
        self, texts: Sequence[str], *, spent: Callable[[str, Usage], object]
    ) -> list[list[float]]:
        """One vector per text, all of one length. `spent` is told the model and what it used. Raises ModelError."""
        ...


Ask = Callable[[str], Awaitable[str]]
"""One question to a model, whole answer back. Raises ModelError, BudgetExceeded."""
