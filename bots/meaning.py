"""The search by meaning, where the settings name an embedding model: how that model is reached."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bots.brains import DIRECT
from bots.provider_keys import key_name
from bots.settings import Settings
from core.errors import ConfigurationError
from core.knowledge.semantics import Semantics
from core.llm.embeddings import ModelEmbedder
from core.llm.litellm_adapter import LiteLLM
from core.llm.openai_embeddings import OpenAIEmbeddings
from storage.database import Database
from storage.knowledge_vectors import SqlKnowledgeVectors

DEADLINE_SECONDS = 60.0


@asynccontextmanager
async def semantics(
    settings: Settings, database: Database
) -> AsyncGenerator[Semantics | None, None]:
    """None without THREADHAND_EMBEDDING_MODEL. Raises ConfigurationError where the model has no key."""
    model = settings.embedding_model
    if not model:
        yield None
        return
    source = _source(model, settings)
    try:
        yield Semantics(ModelEmbedder(source, model), SqlKnowledgeVectors(database))
    finally:
        await source.close()


def _source(model: str, settings: Settings) -> OpenAIEmbeddings | LiteLLM:
    own_key = settings.llm_api_key.get_secret_value()
    if settings.llm_base_url:
        return OpenAIEmbeddings(settings.llm_base_url, own_key, deadline_seconds=DEADLINE_SECONDS)
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    variable = key_name(model)
    if variable and not own_key and variable not in keys:
        raise ConfigurationError(
            f"The embedding model {model} needs a key: set {variable} in .env."
        )
    for prefix, (base_url, variable) in DIRECT.items():
        if model.startswith(prefix):
            return OpenAIEmbeddings(
                base_url,
                own_key or keys[variable],
                model_prefix=prefix,
                deadline_seconds=DEADLINE_SECONDS,
            )
    return LiteLLM(provider_keys=keys, api_key=own_key, silence_seconds=DEADLINE_SECONDS)
