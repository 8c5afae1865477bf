"""Vectors from a local endpoint that speaks OpenAI's embeddings: asked straight, and through litellm."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import pytest

from core.domain.errors import ModelError, ModelUnavailable
from core.domain.threads import Usage
from core.llm.embeddings import ModelEmbedder
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIEmbeddingClient
from tests.fakes.embeddings import EmbeddingsFake, Fault, embeddings_fake

MODEL = "openai/text-embedding-3-small"


@pytest.fixture
async def fake() -> AsyncGenerator[EmbeddingsFake, None]:
    async with embeddings_fake() as served:
        yield served


Source = OpenAIEmbeddingClient | LiteLLMClient


@pytest.fixture(params=["direct", "litellm"])
async def source(request: pytest.FixtureRequest, fake: EmbeddingsFake) -> AsyncGenerator[Source, None]:
    made: Source = (
        OpenAIEmbeddingClient(fake.base_url, fake.key, model_prefix="openai/")
        if request.param == "direct"
        else LiteLLMClient(api_key=fake.key, base_url=fake.base_url)
    )
    yield made
    await made.close()


# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")
Told = list[tuple[str, Usage]]


def nobody(_model: str, _usage: Usage) -> None: ...


class Saying:
    def __init__(self, answer: Mapping[str, object]) -> None:
        self.answer = answer

    async def embed(self, model: str, texts: Sequence[str]) -> Mapping[str, object]:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [float("nan")]}, {"index": 1, "embedding": [1.0]}]},
    ],
)
async def test_an_answer_of_another_shape_is_not_taken(answer: Mapping[str, object]) -> None:
    with pytest.raises(ModelUnavailable):
        await ModelEmbedder(Saying(answer), "m").embed(["one", "two"], spent=nobody)


def booking() -> tuple[Told, Callable[[str, Usage], None]]:
    told: Told = []
    return told, lambda model, usage: told.append((model, usage))


@pytest.mark.parametrize(
    ("usage", "least", "most"),
    [
        ({"prompt_tokens": 7}, 7, 7),
        *((usage, 80, 200) for usage in ({}, None, {"prompt_tokens": 10**30}, {"prompt_tokens": -1})),
    ],
)
async def test_tokens_that_are_not_told_are_estimated(usage: object, least: int, most: int) -> None:
    told, spent = booking()
    answer = {"data": [{"index": 0, "embedding": [1.0]}], "usage": usage}
    await ModelEmbedder(Saying(answer), "m").embed(["word " * 100], spent=spent)
    ((model, used),) = told
    assert model == "m"
    assert least <= used.input_tokens <= most


@pytest.mark.parametrize("fault", ["garbage", "list", "redirect", "cut"])
async def test_what_is_no_answer_is_an_error_of_the_model(source: Source, fake: EmbeddingsFake, fault: Fault) -> None:
    fake.fault = fault
    with pytest.raises(ModelError):
        await ModelEmbedder(source, MODEL).embed(["one"], spent=nobody)


async def test_an_answer_that_comes_too_late_is_estimated_and_a_refusal_costs_nothing(fake: EmbeddingsFake) -> None:
    told, spent = booking()
    source = OpenAIEmbeddingClient(fake.base_url, fake.key, deadline_seconds=0.2)
    embedder = ModelEmbedder(source, "m")
    try:
        for fault in ("status", "cut", "slow"):
            fake.fault = fault
            with pytest.raises(ModelUnavailable):
                await embedder.embed(["word " * 100], spent=spent)
    finally:
        await source.close()
    ((_, used),) = told
    assert 80 <= used.input_tokens <= 200
