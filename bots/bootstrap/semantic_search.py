"""Opens the search by meaning with its embedding client, if an embedding model is set."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.bootstrap.model_clients import OPENAI_PROTOCOL_PROVIDERS
from bots.settings import Settings
from bots.settings.models import provider_key_name
from core.domain.errors import ConfigurationError
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIEmbeddingClient
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledgeVectors

EMBEDDING_DEADLINE_SECONDS = 60.0


@asynccontextmanager
async def open_semantic_search(settings: Settings, database: Database) -> AsyncGenerator[SemanticSearch | None, None]:
    """Context manager: yields the semantic search, or None if THREADHAND_EMBEDDING_MODEL is not set.

    Raises ConfigurationError if the embedding model has no API key."""
    model = settings.embedding_model
    if not model:
        yield None
        return
    client = build_embedding_client(model, settings)
    try:
        yield SemanticSearch(ModelEmbedder(client, model), SqlKnowledgeVectors(database))
    finally:
        await client.close()


def build_embedding_client(model: str, settings: Settings) -> OpenAIEmbeddingClient | LiteLLMClient:
    own_key = settings.llm_api_key.get_secret_value()
    if settings.llm_base_url:
        return OpenAIEmbeddingClient(settings.llm_base_url, own_key, deadline_seconds=EMBEDDING_DEADLINE_SECONDS)
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    variable = provider_key_name(model)
    if variable and not own_key and variable not in keys:
        raise ConfigurationError(f"The embedding model {model} needs a key: set {variable} in .env.")
    for prefix, base_url in OPENAI_PROTOCOL_PROVIDERS.items():
        if model.startswith(prefix):
            key = own_key or keys.get(variable or "", "")
            return OpenAIEmbeddingClient(
                base_url, key, model_prefix=prefix, deadline_seconds=EMBEDDING_DEADLINE_SECONDS
            )
    return LiteLLMClient(provider_keys=keys, api_key=own_key, silence_seconds=EMBEDDING_DEADLINE_SECONDS)
