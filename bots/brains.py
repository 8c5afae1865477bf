"""Choosing how the model is reached: straight over HTTP where it speaks OpenAI's protocol, else through litellm."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from bots.settings import Settings
from core.dialects.dialect import Dialect
from core.dialects.pick import pick
from core.errors import ConfigurationError
from core.llm.litellm_adapter import LiteLLM
from core.llm.openai_stream import OpenAIStream
from core.llm.retry import stream_with_retries
from core.ports import ModelDelta, ModelRequest
from core.turn import AskModel

DIRECT = {
    "openai/": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter/": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Endpoints that are called without litellm: prefix of the model's name, address, the key's own variable."""
DEADLINE_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """The model of the program: how it writes calls, how it is asked, how its connections are closed."""

    dialect: Dialect
    ask_model: AskModel
    close: Callable[[], Awaitable[None]]


def brain(settings: Settings) -> Brain:
    """Raises ConfigurationError where no model is set."""
    if not settings.model:
        raise ConfigurationError(
            "No model is set: put THREADHAND_MODEL=<provider>/<model> and the provider's key into .env "
            "(threadhand setup asks for them), or try scripts/demo, which needs none."
        )
    primary = _llm(settings.model, settings)
    fallbacks = tuple((model, _llm(model, settings)) for model in settings.fallback_models)

    async def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        others = [(llm, replace(request, model=model)) for model, llm in fallbacks]
        stream = stream_with_retries(
            primary, request, fallbacks=others, deadline_seconds=DEADLINE_SECONDS
        )
        async with aclosing(stream):
            async for delta in stream:
                yield delta

    async def close() -> None:
        for llm in (primary, *(llm for _, llm in fallbacks)):
            await llm.close()

    return Brain(dialect=pick(settings.model, settings.dialect), ask_model=ask, close=close)


def _llm(model: str, settings: Settings) -> OpenAIStream | LiteLLM:
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    own_key = settings.llm_api_key.get_secret_value()
    if settings.llm_base_url:
        return OpenAIStream(settings.llm_base_url, own_key)
    for prefix, (base_url, variable) in DIRECT.items():
        if model.startswith(prefix):
            key = own_key or keys.get(variable, "")
            if not key:
                raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
            return OpenAIStream(base_url, key, model_prefix=prefix)
    return LiteLLM(api_key=own_key or None)
