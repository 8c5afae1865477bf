"""Choosing how the model is reached: straight over HTTP where it speaks OpenAI's protocol, else through litellm."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from bots.bootstrap.instrumentation import InstrumentedModel
from bots.settings import Settings
from bots.settings.models import provider_key_name
from core.agents.definition import AgentDefinition
from core.context.window import ContextPolicy
from core.dialects.dialect import Dialect
from core.dialects.selection import select_dialect
from core.domain.budget import Price, PriceOf
from core.domain.errors import ConfigurationError, ModelError, ModelRejected
from core.domain.threads import Usage
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.litellm_client import LiteLLMClient
from core.llm.model_table import load_model_table
from core.llm.openai_client import OpenAIChatClient, OpenAIEmbeddingClient
from core.llm.retry import stream_with_retries
from core.loop.turn import AskModel
from core.observability import NO_FIGURES, Figures
from core.ports import ModelDelta, ModelRequest
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledgeVectors

OPENAI_PROTOCOL_PROVIDERS = {
    "openai/": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter/": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Endpoints that are called without litellm: prefix of the model's name, address, the key's own variable."""
MODEL_DEADLINE_SECONDS = 900.0
NO_KEY_MESSAGE = "The model of this agent has no key here. Please tell whoever runs me."

ProviderClient = OpenAIChatClient | LiteLLMClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient:
    """The model of the program: how it writes calls, how it is asked, how its connections are closed."""

    dialect: Dialect
    ask_model: AskModel
    close: Callable[[], Awaitable[None]]


class ProviderClients:
    """The LLM port over several adapters: each model is asked through its own, made when it is first wanted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._adapters: dict[str, ProviderClient] = {}

    def reach(self, model: str) -> ProviderClient:
        """Raises ConfigurationError for a model without its key."""
        if model not in self._adapters:
            self._adapters[model] = build_provider_client(model, self._settings)
        return self._adapters[model]

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        try:
            adapter = self.reach(request.model)
        except ConfigurationError as error:
            raise ModelRejected(NO_KEY_MESSAGE, detail=str(error)) from error
        return adapter.stream(request)

    async def close(self) -> None:
        for adapter in self._adapters.values():
            await adapter.close()


def missing_key_warnings(agents: Iterable[AgentDefinition], settings: Settings) -> tuple[str, ...]:
    """A sentence for the operator for each agent whose model has no key."""
    told: list[str] = []
    for agent in agents:
        try:
            if agent.model:
                build_provider_client(agent.model, settings)
        except ConfigurationError as error:
            told.append(f"The agent {agent.agent_id} cannot work yet: {error}")
    return tuple(told)


def build_model_client(settings: Settings, figures: Figures = NO_FIGURES) -> ModelClient:
    """Raises ConfigurationError where no model is set, or one has no key."""
    if not settings.model:
        raise ConfigurationError(
            "No model is set: put THREADHAND_MODEL=<provider>/<model> and the provider's key into .env "
            "(threadhand setup asks for them), or try scripts/demo, which needs none."
        )
    models = (settings.model, *settings.fallback_models)
    router = ProviderClients(settings)
    for model in models:
        router.reach(model)

    watched = InstrumentedModel(router, figures)

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return stream_with_retries(
            watched,
            request,
            fallbacks=settings.fallback_models,
            deadline_seconds=MODEL_DEADLINE_SECONDS,
        )

    return ModelClient(
        dialect=select_dialect(settings.model, settings.dialect), ask_model=ask, close=router.close
    )


def shared_key_for(model: str, settings: Settings) -> str:
    """THREADHAND_LLM_API_KEY, which goes before a provider's own key for the models of the settings, and behind it for
    those of agents: they may be another provider's."""
    is_set = model in (settings.model, *settings.fallback_models)
    has_named = provider_key_name(model) in settings.provider_keys
    if has_named and not is_set and not settings.llm_base_url:
        return ""
    return settings.llm_api_key.get_secret_value()


def build_provider_client(model: str, settings: Settings) -> ProviderClient:
    own_key = shared_key_for(model, settings)
    if settings.llm_base_url:
        return OpenAIChatClient(settings.llm_base_url, own_key)
    for prefix, (base_url, variable) in OPENAI_PROTOCOL_PROVIDERS.items():
        if not model.startswith(prefix):
            continue
        named = settings.provider_keys.get(variable)
        key = own_key or (named.get_secret_value() if named else "")
        if not key:
            raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
        return OpenAIChatClient(base_url, key, model_prefix=prefix)
    variable = provider_key_name(model)
    if variable and not own_key and variable not in settings.provider_keys:
        raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    return LiteLLMClient(provider_keys=keys, api_key=own_key)


COST_REPORTING_PROVIDER = "openrouter"
"""Says with each answer what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpecs:
    """`lacks` are sentences for the operator."""

    context_policy: ContextPolicy
    price_of: PriceOf
    lacks: tuple[str, ...] = ()


async def load_model_specs(settings: Settings) -> ModelSpecs:
    """The settings' own word first, then the table of known models. Raises ConfigurationError."""
    window, answer = settings.context_tokens, settings.answer_tokens
    if window is not None and answer is not None and answer >= window:
        raise ConfigurationError(
            "THREADHAND_ANSWER_TOKENS is a part of THREADHAND_CONTEXT_TOKENS and must be smaller."
        )
    own, table = _own_price(settings), await asyncio.to_thread(load_model_table)

    def price_of(model: str) -> Price | None:
        # an endpoint of somebody's own has prices of its own, whatever its models are called
        listed = None if settings.llm_base_url else table.prices.get(model)
        # the price that is set is that of models that write; vectors cost a fraction of it
        return listed if model == settings.embedding_model else own or listed

    return ModelSpecs(
        context_policy=ContextPolicy(
            limits=table.limits, window_tokens=window, answer_tokens=answer
        ),
        price_of=price_of,
        lacks=_lacks(settings, price_of),
    )


def _own_price(settings: Settings) -> Price | None:
    read, written = settings.price_input_per_million_usd, settings.price_output_per_million_usd
    if read is None and written is None:
        return None
    if read is None or written is None:
        raise ConfigurationError(
            "A price has two parts: set both THREADHAND_PRICE_INPUT_PER_MILLION_USD and"
            " THREADHAND_PRICE_OUTPUT_PER_MILLION_USD."
        )
    return Price(
        input_per_million_usd=read,
        cached_per_million_usd=read,
        output_per_million_usd=written,
        is_set=True,
    )


def _lacks(settings: Settings, price_of: PriceOf) -> tuple[str, ...]:
    if not settings.budget.is_in_dollars:
        return ()
    return tuple(
        f"A budget in US dollars is set, but it is not known what {model} costs, so its calls count as free: set"
        " THREADHAND_PRICE_INPUT_PER_MILLION_USD and THREADHAND_PRICE_OUTPUT_PER_MILLION_USD, or a budget in tokens."
        for model in dict.fromkeys((settings.model, *settings.fallback_models))
        if model and price_of(model) is None and not _tells_cost(model, settings)
    )


def _tells_cost(model: str, settings: Settings) -> bool:
    if settings.llm_base_url:
        return COST_REPORTING_PROVIDER in (urlsplit(settings.llm_base_url).hostname or "")
    return model.startswith(f"{COST_REPORTING_PROVIDER}/")


EMBEDDING_DEADLINE_SECONDS = 60.0
TRIAL_SECONDS = 20.0


@asynccontextmanager
async def open_semantic_search(
    settings: Settings, database: Database
) -> AsyncGenerator[SemanticSearch | None, None]:
    """None without THREADHAND_EMBEDDING_MODEL. Raises ConfigurationError where the model has no key."""
    model = settings.embedding_model
    if not model:
        yield None
        return
    source = build_embedding_client(model, settings)
    try:
        yield SemanticSearch(ModelEmbedder(source, model), SqlKnowledgeVectors(database))
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
        source = build_embedding_client(model, settings)
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


def build_embedding_client(model: str, settings: Settings) -> OpenAIEmbeddingClient | LiteLLMClient:
    own_key = settings.llm_api_key.get_secret_value()
    if settings.llm_base_url:
        return OpenAIEmbeddingClient(
            settings.llm_base_url, own_key, deadline_seconds=EMBEDDING_DEADLINE_SECONDS
        )
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    variable = provider_key_name(model)
    if variable and not own_key and variable not in keys:
        raise ConfigurationError(
            f"The embedding model {model} needs a key: set {variable} in .env."
        )
    for prefix, (base_url, variable) in OPENAI_PROTOCOL_PROVIDERS.items():
        if model.startswith(prefix):
            return OpenAIEmbeddingClient(
                base_url,
                own_key or keys[variable],
                model_prefix=prefix,
                deadline_seconds=EMBEDDING_DEADLINE_SECONDS,
            )
    return LiteLLMClient(
        provider_keys=keys, api_key=own_key, silence_seconds=EMBEDDING_DEADLINE_SECONDS
    )
