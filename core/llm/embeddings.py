"""Texts to vectors: the answers of an embedding model, checked."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from core.errors import ModelUnavailable
from core.llm.errors import UNREADABLE

DIMENSIONS_MAX = 8_192


class EmbeddingSource(Protocol):
    """How an embedding model is reached: `core.llm.litellm_adapter.LiteLLM` or
    `core.llm.openai_embeddings.OpenAIEmbeddings`."""

    async def embed(self, model: str, texts: Sequence[str]) -> Mapping[str, object]:
        """An answer in the shape of OpenAI's embeddings. Raises ModelError."""
        ...


class ModelEmbedder:
    """`core.knowledge.ports.Embedder` for one model. State: the length of its vectors, once it is known."""

    def __init__(self, source: EmbeddingSource, model: str) -> None:
        self._source = source
        self._model = model
        self._length: int | None = None

    @property
    def model(self) -> str:
        return self._model

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, all of one length. Raises ModelError, also for an answer that is not that."""
        if not texts:
            return []
        answer = await self._source.embed(self._model, texts)
        try:
            told = sorted(_Answer.model_validate(answer).data, key=lambda one: one.index)
        except ValidationError as error:
            raise ModelUnavailable(UNREADABLE, detail="embeddings of another shape") from error
        lengths = {len(one.embedding) for one in told}
        if [one.index for one in told] != list(range(len(texts))) or len(lengths) != 1:
            raise ModelUnavailable(
                UNREADABLE, detail=f"{len(told)} embeddings for {len(texts)} texts"
            )
        self._check_length(*lengths)
        return [one.embedding for one in told]

    def _check_length(self, length: int) -> None:
        """Vectors of two lengths cannot be compared."""
        self._length = self._length or length
        if length != self._length:
            raise ModelUnavailable(
                UNREADABLE, detail=f"embeddings of length {length}, before of length {self._length}"
            )


class _Vector(BaseModel):
    model_config = ConfigDict(extra="ignore")

    index: int
    embedding: list[FiniteFloat] = Field(min_length=1, max_length=DIMENSIONS_MAX)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    data: list[_Vector]
