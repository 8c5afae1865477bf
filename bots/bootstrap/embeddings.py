"""The search by meaning, where the settings name an embedding model: how that model is reached."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from bots.bootstrap.model_clients import DIRECT
from bots.settings import Settings
from bots.settings.provider_keys import key_name
from core.domain.errors import ConfigurationError, ModelError
from core.domain.threads import Usage
from core.knowledge.semantics import Semantics
from core.llm.embeddings import ModelEmbedder
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIEmbeddingClient
from storage.sql.database import Database
from storage.sql.stores.knowledge_vectors import SqlKnowledgeVectors

DEADLINE_SECONDS = 60.0
TRIAL_SECONDS = 20.0


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


async def tried(settings: Settings) -> tuple[Literal["ok", "fail"], str, str, str] | None:
    """State, subject, fact and remedy for the doctor: whether the model of embeddings makes a vector of one word. None
    where no model is set."""
    model = settings.embedding_model
    if not model:
        return None
    remedy = (
        "Correct THREADHAND_EMBEDDING_MODEL or its key; without it knowledge is searched by words."
    )
    try:
        source = _source(model, settings)
    except ConfigurationError as error:
        return "fail", "meaning", str(error), ""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            (vector,) = await ModelEmbedder(source, model).embed(["word"], spent=_nobody)
    except TimeoutError:
        return "fail", "meaning", f"{model} did not answer in {TRIAL_SECONDS:g} s.", remedy
    except ModelError as error:
        fact = " ".join((error.detail or str(error)).split())
        return "fail", "meaning", f"{model} makes no vectors: {fact}.", remedy
    finally:
        await source.close()
    return "ok", "meaning", f"{model} makes vectors of {len(vector)} numbers.", ""


def _nobody(_model: str, _usage: Usage) -> None:
    """The doctor has no ledger."""


def _source(model: str, settings: Settings) -> OpenAIEmbeddingClient | LiteLLMClient:
    own_key = settings.llm_api_key.get_secret_value()
    if settings.llm_base_url:
        return OpenAIEmbeddingClient(
            settings.llm_base_url, own_key, deadline_seconds=DEADLINE_SECONDS
        )
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    variable = key_name(model)
    if variable and not own_key and variable not in keys:
        raise ConfigurationError(
            f"The embedding model {model} needs a key: set {variable} in .env."
        )
    for prefix, (base_url, variable) in DIRECT.items():
        if model.startswith(prefix):
            return OpenAIEmbeddingClient(
                base_url,
                own_key or keys[variable],
                model_prefix=prefix,
                deadline_seconds=DEADLINE_SECONDS,
            )
    return LiteLLMClient(provider_keys=keys, api_key=own_key, silence_seconds=DEADLINE_SECONDS)
