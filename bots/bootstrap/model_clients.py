"""Choosing how the model is reached: straight over HTTP where it speaks OpenAI's protocol, else through litellm."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from bots.bootstrap.instrumentation import WatchedModel
from bots.settings import Settings
from bots.settings.provider_keys import key_name
from core.agents.definition import AgentDefinition
from core.dialects.dialect import Dialect
from core.dialects.selection import select_dialect
from core.domain.errors import ConfigurationError, ModelRejected
from core.llm.litellm_client import LiteLLMClient
from core.llm.openai_client import OpenAIChatClient
from core.llm.retry import stream_with_retries
from core.loop.turn import AskModel
from core.metrics import NO_FIGURES, Figures
from core.ports import ModelDelta, ModelRequest

DIRECT = {
    "openai/": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter/": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Endpoints that are called without litellm: prefix of the model's name, address, the key's own variable."""
DEADLINE_SECONDS = 900.0
NO_KEY = "The model of this agent has no key here. Please tell whoever runs me."

Adapter = OpenAIChatClient | LiteLLMClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """The model of the program: how it writes calls, how it is asked, how its connections are closed."""

    dialect: Dialect
    ask_model: AskModel
    close: Callable[[], Awaitable[None]]


class ModelRouter:
    """The LLM port over several adapters: each model is asked through its own, made when it is first wanted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._adapters: dict[str, Adapter] = {}

    def reach(self, model: str) -> Adapter:
        """Raises ConfigurationError for a model without its key."""
        if model not in self._adapters:
            self._adapters[model] = _adapter(model, self._settings)
        return self._adapters[model]

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        try:
            adapter = self.reach(request.model)
        except ConfigurationError as error:
            raise ModelRejected(NO_KEY, detail=str(error)) from error
        return adapter.stream(request)

    async def close(self) -> None:
        for adapter in self._adapters.values():
            await adapter.close()


def unreachable(agents: Iterable[AgentDefinition], settings: Settings) -> tuple[str, ...]:
    """A sentence for the operator for each agent whose model has no key."""
    told: list[str] = []
    for agent in agents:
        try:
            if agent.model:
                _adapter(agent.model, settings)
        except ConfigurationError as error:
            told.append(f"The agent {agent.agent_id} cannot work yet: {error}")
    return tuple(told)


def brain(settings: Settings, figures: Figures = NO_FIGURES) -> Brain:
    """Raises ConfigurationError where no model is set, or one has no key."""
    if not settings.model:
        raise ConfigurationError(
            "No model is set: put THREADHAND_MODEL=<provider>/<model> and the provider's key into .env "
            "(threadhand setup asks for them), or try scripts/demo, which needs none."
        )
    models = (settings.model, *settings.fallback_models)
    router = ModelRouter(settings)
    for model in models:
        router.reach(model)

    watched = WatchedModel(router, figures)

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return stream_with_retries(
            watched, request, fallbacks=settings.fallback_models, deadline_seconds=DEADLINE_SECONDS
        )

    return Brain(
        dialect=select_dialect(settings.model, settings.dialect), ask_model=ask, close=router.close
    )


def own_key_for(model: str, settings: Settings) -> str:
    """THREADHAND_LLM_API_KEY, which goes before a provider's own key for the models of the settings, and behind it for
    those of agents: they may be another provider's."""
    is_set = model in (settings.model, *settings.fallback_models)
    has_named = key_name(model) in settings.provider_keys
    if has_named and not is_set and not settings.llm_base_url:
        return ""
    return settings.llm_api_key.get_secret_value()


def _adapter(model: str, settings: Settings) -> Adapter:
    own_key = own_key_for(model, settings)
    if settings.llm_base_url:
        return OpenAIChatClient(settings.llm_base_url, own_key)
    for prefix, (base_url, variable) in DIRECT.items():
        if not model.startswith(prefix):
            continue
        named = settings.provider_keys.get(variable)
        key = own_key or (named.get_secret_value() if named else "")
        if not key:
            raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
        return OpenAIChatClient(base_url, key, model_prefix=prefix)
    variable = key_name(model)
    if variable and not own_key and variable not in settings.provider_keys:
        raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    return LiteLLMClient(provider_keys=keys, api_key=own_key)
