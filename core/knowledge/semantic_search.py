"""The optional search by meaning: vectors of passages and questions, as long as the embedding model answers."""

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
"""A run waits so long at most for the vector of its question; the words alone find enough."""
PAUSE_SECONDS = 60.0
"""After a failure questions go without meaning for so long, so that a slow service does not slow every run."""


@dataclass(slots=True)
class _Health:
    """Whether the model has failed of late."""

    is_failing: bool = False
    paused_until: float = 0.0


def _nobody(_model: str, _usage: Usage) -> None:
    """Where nobody pays."""


@dataclass(slots=True, eq=False)
class SemanticSearch:
    """What a model of embeddings adds to the search by words. `spent` is told what it used.

    Nothing here raises ModelError: the operator is told at the first failure, and again only if it worked in between.
    """

    embedder: Embedder
    vectors: KnowledgeVectors
    question_seconds: float = QUESTION_SECONDS
    pause_seconds: float = PAUSE_SECONDS
    spent: Callable[[str, Usage], object] = _nobody
    _health: _Health = field(default_factory=_Health)

    def reporting_usage_to(self, spent: Callable[[str, Usage], object]) -> "SemanticSearch":
        """The same, at the expense of somebody."""
        return replace(self, spent=spent)

    async def nearest(
        self, question: str, entry_ids: Sequence[str], *, limit: int
    ) -> tuple[Hit, ...]:
        """The chunks of these entries that mean something near; nothing where the model does not answer."""
        if asyncio.get_running_loop().time() < self._health.paused_until:
            return ()
        found = await self._embedded([question], seconds=self.question_seconds)
        if not found:
            return ()
        return await self.vectors.nearest(found[0], self.embedder.model, entry_ids, limit=limit)

    async def knows(self, entry_id: str) -> bool:
        """Whether the entry's vectors are there."""
        return await self.vectors.has(entry_id, self.embedder.model)

    async def keep(self, entry_id: str, texts: Sequence[str]) -> None:
        """Keeps the vectors of an entry's chunks, given in order. All of them or none."""
        kept = list[list[float]]()
        for at in range(0, len(texts), EMBEDDED_AT_ONCE):
            batch = await self._embedded(texts[at : at + EMBEDDED_AT_ONCE], seconds=BATCH_SECONDS)
            if not batch:
                return
            kept += batch
        await self.vectors.put(entry_id, self.embedder.model, kept)

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
