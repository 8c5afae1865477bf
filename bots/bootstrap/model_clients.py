"""Builds the clients of language models."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from bots.bootstrap.observability import InstrumentedModel
from bots.settings import Settings
from bots.settings.models import provider_key_name
from core.agents.definition import AgentDefinition
from core.context.truncation import fit_request
from core.context.window import ContextPolicy
from core.dialects.dialect import Dialect
from core.dialects.selection import select_dialect, write_tools_as_text
from core.domain.errors import ConfigurationError, ModelRejected
from core.domain.model_options import NO_OPTIONS
from core.llm.error_mapping import NO_IMAGES, NO_TOOL_CALLS
from core.llm.litellm_client import LiteLLMClient
from core.llm.message_rules import without_images
from core.llm.openai_client import OpenAIChatClient
from core.llm.reasoning import without_thinking_after_others
from core.llm.retry import stream_with_retries
from core.loop.run_context import AskModel
from core.mcp.refused_tools import RefusedTools, leave_out_refused_tools, note_refused_tool
from core.observability import NO_METRICS, RunMetrics
from core.ports import ModelDelta, ModelRequest

log = logging.getLogger(__name__)

OPENAI_PROTOCOL_PROVIDERS = {"openai/": "https://api.openai.com/v1", "openrouter/": "https://openrouter.ai/api/v1"}
"""The base URLs of providers that are called without litellm, by the prefix of a model name."""
SILENCE_SECONDS = 180.0
"""How long a response may pause, unless it may take even longer to begin."""
_REASONING_MODEL = re.compile(r"(?:openai/)?(?:o\d|gpt-[5-9]|codex)(?!.*chat)")
_NEEDS_THINKING = re.compile(r"expected .?thinking\b|start with a thinking block", re.IGNORECASE)
"""Matches Anthropic's error for a request with thinking if the calls whose results it contains were made without
thinking."""
NO_KEY_MESSAGE = "This agent's model has no API key. Please tell the person who runs this bot."
NO_MODEL_MESSAGE = "No model is set up yet. Please tell the person who runs this bot."

ANY_CONTEXT = ContextPolicy()

ProviderClient = OpenAIChatClient | LiteLLMClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient:
    """The configured model: its tool call dialect, a function that calls it, and a function that closes its
    connections."""

    dialect: Dialect
    ask_model: AskModel
    close: Callable[[], Awaitable[None]]


class ProviderClients:
    """Implements the LLM port. Sends each request to the client of the model's provider, created on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: dict[str, ProviderClient] = {}
        self._without_tool_calls: set[str] = set()
        self._without_images: set[str] = set()
        self._think_before_calls: set[str] = set()
        self.refused_tools = RefusedTools()

    def client_for(self, model: str) -> ProviderClient:
        """Returns the client for `model`. Raises ConfigurationError if the model's API key is missing."""
        if model not in self._clients:
            self._clients[model] = build_provider_client(model, self._settings)
        return self._clients[model]

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        try:
            client = self.client_for(request.model)
        except ConfigurationError as error:
            message = NO_KEY_MESSAGE if request.model else NO_MODEL_MESSAGE
            raise ModelRejected(message, detail=str(error)) from error
        if request.tools and request.model in self._without_tool_calls:
            request = write_tools_as_text(request)
        if request.model in self._without_images:
            request = replace(request, messages=without_images(request.messages))
        request = self._with_options(request)
        if request.model in self._think_before_calls:
            request = without_thinking_after_others(request)
        return client.stream(request)

    def adapt_to_refusal(self, request: ModelRequest, error: ModelRejected) -> str:
        """Adapts to a model that accepts no images, no tool calls, no tool calls without thinking, or not the schema of
        an MCP tool. Returns what will change, or an empty text. Until the program ends, requests to the model then have
        notes in place of images, describe the tools as text, turn thinking off if other models made the last calls, or
        leave the tool out."""
        model = request.model
        if str(error) == NO_IMAGES:
            self._without_images.add(model)
            log.warning("%s takes no images: %s", model, error.detail)
            return "images"
        if _NEEDS_THINKING.search(error.detail):
            self._think_before_calls.add(model)
            return "thinking"
        if str(error) == NO_TOOL_CALLS and request.tools:
            self._without_tool_calls.add(model)
            log.warning("%s takes no tool calls, so it writes them as text: %s", model, error.detail)
            return "tool calls"
        return note_refused_tool(request, error, self.refused_tools)

    def _with_options(self, request: ModelRequest) -> ModelRequest:
        """Returns the request with the options of its model, which the options of the request override. Requests
        outside the turns of a run get no `tool_choice`."""
        own = self._settings.model_options.get(request.model, NO_OPTIONS)
        if request.options is None:
            options = own.model_copy(update={"tool_choice": None})
        else:
            options = own.replaced_by(request.options)
        answer_tokens = request.output_tokens_max or options.answer_tokens
        if answer_tokens is not None:
            # models count their thinking as part of the answer
            answer_tokens += options.thinking_tokens
        temperature = options.temperature if request.temperature is None else request.temperature
        return replace(request, options=options, output_tokens_max=answer_tokens, temperature=temperature)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def missing_key_warnings(agents: Iterable[AgentDefinition], settings: Settings) -> tuple[str, ...]:
    """Returns a warning for each agent whose model has no API key."""
    warnings: list[str] = []
    for agent in agents:
        try:
            if agent.model:
                build_provider_client(agent.model, settings)
        except ConfigurationError as error:
            warnings.append(f"The agent {agent.agent_id} cannot work yet: {error}")
    return tuple(warnings)


def without_models_that_lack_a_key(settings: Settings) -> tuple[Settings, list[str]]:
    """Returns the settings without the models whose key is missing, and a sentence for each of these. If the key of the
    main model is missing, the first fallback that has a key takes its place."""
    usable: list[str] = []
    missing: list[str] = []
    for model in settings.models:
        try:
            build_provider_client(model, settings)
            usable.append(model)
        except ConfigurationError as error:
            missing.append(f"{error} Until then it is not used; `threadhand setup` asks for the key.")
    if not missing:
        return settings, []
    first, *others = usable if settings.model and usable else ["", *usable]
    return settings.model_copy(update={"model": first, "fallback_models": tuple(others)}), missing


def build_model_client(
    settings: Settings, policy: ContextPolicy = ANY_CONTEXT, metrics: RunMetrics = NO_METRICS
) -> ModelClient:
    """Builds the client of the configured model and its fallbacks. Without a model, only calls of the client fail.
    `policy` gives the context windows of the fallbacks.

    Raises ConfigurationError if a model has no API key."""
    clients = ProviderClients(settings)
    for model in settings.models:
        clients.client_for(model)

    watched = InstrumentedModel(clients, metrics, policy.observed.observe)

    def fit(model: str, request: ModelRequest) -> ModelRequest:
        request = leave_out_refused_tools(request, clients.refused_tools)
        if request.model == model:
            return request
        if request.tools and select_dialect(request.model, settings.dialect).name != "native":
            request = write_tools_as_text(request)
        return fit_request(request, policy.limit_of(request.model).room)

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return stream_with_retries(
            watched,
            request,
            fallbacks=settings.fallback_models,
            first_seconds=settings.model_first_seconds,
            fallback_seconds=settings.model_fallback_seconds,
            deadline_seconds=settings.model_deadline_seconds,
            change_after_refusal=clients.adapt_to_refusal,
            fit=partial(fit, request.model),
        )

    return ModelClient(dialect=select_dialect(settings.model, settings.dialect), ask_model=ask, close=clients.close)


def shared_key_for(model: str, settings: Settings) -> str:
    """Returns THREADHAND_LLM_API_KEY if `model` should use it, else an empty string.

    For models in the settings, this key takes precedence over the provider's own key. For models of agents, the
    provider's own key takes precedence, because those models may belong to another provider."""
    is_set = model in settings.models
    has_named = provider_key_name(model) in settings.provider_keys
    if has_named and not is_set and not settings.llm_base_url:
        return ""
    return settings.llm_api_key.get_secret_value()


def build_provider_client(model: str, settings: Settings) -> ProviderClient:
    """Raises ConfigurationError if `model` is empty or has no API key."""
    if not model:
        raise ConfigurationError("No model is set: `threadhand setup` asks for one.")
    own_key = shared_key_for(model, settings)
    first = settings.model_first_seconds if settings.stream else settings.model_deadline_seconds
    silence = max(SILENCE_SECONDS, first)
    if settings.llm_base_url:
        is_chosen = uses_responses_api(model, settings.llm_base_url, settings)
        return OpenAIChatClient(settings.llm_base_url, own_key, uses_responses_api=is_chosen, silence_seconds=silence)
    variable = provider_key_name(model)
    if variable and not own_key and variable not in settings.provider_keys:
        raise ConfigurationError(f"The model {model} needs a key: set {variable} in .env.")
    keys = {name: key.get_secret_value() for name, key in settings.provider_keys.items()}
    for prefix, base_url in OPENAI_PROTOCOL_PROVIDERS.items():
        if model.startswith(prefix):
            return OpenAIChatClient(
                base_url,
                own_key or keys.get(variable or "", ""),
                model_prefix=prefix,
                uses_responses_api=uses_responses_api(model, base_url, settings),
                silence_seconds=silence,
            )
    return LiteLLMClient(provider_keys=keys, api_key=own_key, silence_seconds=silence)


def uses_responses_api(model: str, base_url: str, settings: Settings) -> bool:
    """Returns whether the model is called through the Responses API.

    By default these are OpenAI's own reasoning models, because its chat API never returns their reasoning."""
    if settings.llm_api != "auto":
        return settings.llm_api == "responses"
    is_openai = urlsplit(base_url).hostname == "api.openai.com"
    return is_openai and _REASONING_MODEL.match(model) is not None
