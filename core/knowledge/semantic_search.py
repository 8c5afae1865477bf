"""Optional semantic search: embeddings of passages and questions, paused while the embedding model fails."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from core.domain.errors import ModelError, ModelUnavailable
from core.domain.threads import Usage
from core.knowledge.ports import Embedder, Hit, KnowledgeVectors

log = logging.getLogger(__name__)

EMBEDDED_AT_ONCE = 64
BATCH_SECONDS = 60.0
QUESTION_SECONDS = 10.0
"""The longest that a run waits for the embedding of its question before it searches by words only."""
PAUSE_SECONDS = 60.0
"""How long questions skip semantic search after a failure, so that a slow service does not slow every run."""


@dataclass(slots=True)
class _Health:
    """Records recent failures of the embedding model."""

    is_failing: bool = False
    paused_until: float = 0.0


@dataclass(slots=True, eq=False)
class SemanticSearch:
    """Search by embeddings, in addition to the search by words. `spent` receives the model and its usage.

    Never raises ModelError. Logs the first failure, and later failures only after a success."""

    embedder: Embedder
    vectors: KnowledgeVectors
    question_seconds: float = QUESTION_SECONDS
    pause_seconds: float = PAUSE_SECONDS
    spent: Callable[[str, Usage], object] = lambda _model, _usage: None
    _health: _Health = field(default_factory=_Health)

    def reporting_usage_to(self, spent: Callable[[str, Usage], object]) -> "SemanticSearch":
        """Returns a copy that reports usage to `spent`."""
        return replace(self, spent=spent)

    async def nearest(self, question: str, entry_ids: Sequence[str], *, limit: int) -> tuple[Hit, ...]:
        """Returns the entries' chunks that are closest in meaning, or none if the embedding model does not answer."""
        if asyncio.get_running_loop().time() < self._health.paused_until:
            return ()
        found = await self._embedded([question], seconds=self.question_seconds)
        if not found:
            return ()
        return await self.vectors.nearest(found[0], self.embedder.model, entry_ids, limit=limit)

    async def has_embeddings(self, entry_id: str) -> bool:
        """Returns whether the entry has embeddings of this model."""
        return await self.vectors.has_vectors(entry_id, self.embedder.model)

    async def store_embeddings(self, entry_id: str, texts: Sequence[str]) -> None:
        """Stores the embeddings of an entry's chunks, given in order. Stores all of them or none."""
        kept = list[list[float]]()
        for at in range(0, len(texts), EMBEDDED_AT_ONCE):
            batch = await self._embedded(texts[at : at + EMBEDDED_AT_ONCE], seconds=BATCH_SECONDS)
            if not batch:
                return
            kept += batch
        await self.vectors.insert_missing(entry_id, self.embedder.model, kept)

    async def _embedded(self, texts: Sequence[str], *, seconds: float) -> list[list[float]]:
        try:
            async with asyncio.timeout(seconds):
                found = await self.embedder.embed(texts, spent=self.spent)
        except TimeoutError:
            self._failed(ModelUnavailable("", detail=f"no answer within {seconds:g} s"))
            return []
        except ModelError as error:
            self._failed(error)
            return []
        self._health.is_failing, self._health.paused_until = False, 0.0
        return found

    def _failed(self, error: ModelError) -> None:
        self._health.paused_until = asyncio.get_running_loop().time() + self.pause_seconds
        if self._health.is_failing:
            return
        self._health.is_failing = True
        log.warning(
            "the embedding model %s fails, knowledge is searched by words alone: %s",
            self.embedder.model,
            error.detail or error,
        )
