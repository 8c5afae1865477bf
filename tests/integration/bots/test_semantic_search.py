"""The setting for the search by meaning, and what it reaches."""

import pytest

from bots.bootstrap.semantic_search import open_semantic_search
from core.domain.errors import ConfigurationError
from core.domain.threads import Usage
from storage.sql.database import Database
from tests.fakes.embeddings import embeddings_fake, vector_of
from tests.support.settings import settings

# litellm reads a deprecated attribute of its own models
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")


def nobody(_model: str, _usage: Usage) -> None: ...


async def test_the_endpoint_of_the_model_is_asked_with_its_key(database: Database) -> None:
    async with embeddings_fake() as fake:
        chosen = settings(EMBEDDING_MODEL="own/e5", LLM_BASE_URL=fake.base_url, LLM_API_KEY=fake.key)
        async with open_semantic_search(chosen, database) as found:
            assert found is not None
            assert await found.embedder.embed(["a cat"], spent=nobody) == [vector_of("a cat")]
        assert [one["model"] for one in fake.seen] == ["own/e5"]


async def test_any_other_provider_is_reached_through_litellm(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embeddings_fake() as fake:
        fake.key = ""
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", fake.base_url)
        async with open_semantic_search(settings(EMBEDDING_MODEL="hosted_vllm/e5"), database) as found:
            assert found is not None
            assert await found.embedder.embed(["a cat"], spent=nobody) == [vector_of("a cat")]
        assert [one["model"] for one in fake.seen] == ["e5"]


@pytest.mark.parametrize("model", ["openai/text-embedding-3-small", "mistral/mistral-embed"])
async def test_a_model_without_its_key_is_refused_by_name(database: Database, model: str) -> None:
    with pytest.raises(ConfigurationError, match="_API_KEY in"):
        async with open_semantic_search(settings(EMBEDDING_MODEL=model), database):
            pass
