"""Vectors from a local endpoint that speaks OpenAI's embeddings."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core.errors import ModelRejected, ModelUnavailable
from core.llm.embeddings import LiteLLMEmbedder
from core.llm.litellm_adapter import LiteLLM

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")


@asynccontextmanager
async def endpoint(status: int = 200) -> AsyncGenerator[tuple[str, list[dict[str, object]]]]:
    """Answers each text with its length and 1, in the wrong order."""
    seen: list[dict[str, object]] = []

    async def embeddings(request: web.Request) -> web.Response:
        asked = await request.json()
        seen.append(asked)
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        vectors = [
            {"object": "embedding", "index": at, "embedding": [float(len(text)), 1.0]}
            for at, text in enumerate(asked["input"])
        ]
        return web.json_response(
            {
                "object": "list",
                "model": asked["model"],
                "data": vectors[::-1],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        )

    app = web.Application()
    app.router.add_post("/v1/embeddings", embeddings)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    finally:
        await runner.cleanup()


async def test_each_text_gets_its_vector() -> None:
    async with endpoint() as (url, seen):
        llm = LiteLLM(api_key="sk-test", base_url=url)
        try:
            embedder = LiteLLMEmbedder(llm, "openai/text-embedding-3-small")
            vectors = await embedder.embed(["one", "three"])
        finally:
            await llm.close()

    assert vectors == [[3.0, 1.0], [5.0, 1.0]]
    assert embedder.model == "openai/text-embedding-3-small"
    assert (len(seen), seen[0]["model"]) == (1, "text-embedding-3-small")


@pytest.mark.parametrize(("status", "error"), [(401, ModelRejected), (503, ModelUnavailable)])
async def test_a_refusal_is_told_in_our_words(status: int, error: type[Exception]) -> None:
    async with endpoint(status) as (url, _):
        llm = LiteLLM(api_key="sk-test", base_url=url)
        try:
            with pytest.raises(error):
                await LiteLLMEmbedder(llm, "openai/text-embedding-3-small").embed(["one"])
        finally:
            await llm.close()


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
        await LiteLLMEmbedder(Saying(answer), "m").embed(["one", "two"])


async def test_nothing_is_asked_for_no_texts() -> None:
    assert await LiteLLMEmbedder(Saying({}), "m").embed([]) == []
