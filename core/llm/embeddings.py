"""Computes embedding vectors of texts with an embedding model, and validates the model's responses."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from core.context.tokens import count_text
from core.domain.errors import ModelUnavailable
from core.domain.json import json_fields
from core.domain.threads import Usage
from core.llm.error_mapping import UNREADABLE_RESPONSE
from core.llm.openai_answer import parse_usage

DIMENSIONS_MAX = 8_192


class EmbeddingClient(Protocol):
    """A client for embedding models.

    Implemented by `core.llm.litellm_client.LiteLLMClient` and `core.llm.openai_client.OpenAIEmbeddingClient`."""

    async def embed(self, model: str, texts: Sequence[str]) -> Mapping[str, object]:
        """Returns a response in the format of OpenAI's embeddings API. Raises ModelError."""
        ...


class ModelEmbedder:
    """Implements `core.knowledge.ports.Embedder` for one model.

    Remembers the length of the first vectors and rejects vectors of any other length."""

    def __init__(self, source: EmbeddingClient, model: str) -> None:
        self._source = source
        self._model = model
        self._length: int | None = None

    @property
    def model(self) -> str:
        return self._model

    async def embed(self, texts: Sequence[str], *, spent: Callable[[str, Usage], object]) -> list[list[float]]:
        """Returns one vector per text; all vectors have the same length.

        Calls `spent` with the model's name and its usage. If the response reports no usage, the request times out, or
        the caller cancels it, the usage is an estimate.

        Raises ModelError if the request fails or the response is invalid."""
        if not texts:
            return []
        try:
            answer = await self._source.embed(self._model, texts)
        except ModelUnavailable as error:
            if error.is_late:
                spent(self._model, _estimated(texts))
            raise
        except asyncio.CancelledError:
            spent(self._model, _estimated(texts))
            raise
        usage = parse_usage(json_fields(answer.get("usage")))
        spent(self._model, usage if usage.input_tokens else _estimated(texts))
        try:
            told = sorted(_Answer.model_validate(answer).data, key=lambda one: one.index)
        except ValidationError as error:
            raise ModelUnavailable(UNREADABLE_RESPONSE, detail="embeddings of another shape") from error
        lengths = {len(one.embedding) for one in told}
        if [one.index for one in told] != list(range(len(texts))) or len(lengths) != 1:
            raise ModelUnavailable(UNREADABLE_RESPONSE, detail=f"{len(told)} embeddings for {len(texts)} texts")
        length = lengths.pop()
        self._length = self._length or length
        if length != self._length:
            detail = f"embeddings of length {length}, before of length {self._length}"
            raise ModelUnavailable(UNREADABLE_RESPONSE, detail=detail)
        return [one.embedding for one in told]


def _estimated(texts: Sequence[str]) -> Usage:
    return Usage(input_tokens=sum(map(count_text, texts)))


class _Vector(BaseModel):
    index: int
    embedding: list[FiniteFloat] = Field(min_length=1, max_length=DIMENSIONS_MAX)


class _Answer(BaseModel):
    data: list[_Vector]
