"""Tries the models of the settings with one short request each, as runs call them."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from bots.bootstrap.model_clients import OPENAI_PROTOCOL_PROVIDERS, ProviderClient, build_provider_client
from bots.bootstrap.model_specs import load_model_specs
from bots.bootstrap.semantic_search import build_embedding_client
from bots.settings import Settings
from bots.settings.models import provider_key_name
from bots.setup.check_runner import Check, blocking_check, run_in_parallel
from bots.setup.findings import Finding, untested_finding
from bots.setup.service_checks import ServiceClient
from core.context.limits import ASSUMED
from core.context.tokens import count_text
from core.dialects.selection import select_dialect
from core.domain.errors import ConfigurationError, ModelError, ModelRejected, ModelUnavailable
from core.domain.json import JsonObject, json_objects
from core.llm.embeddings import ModelEmbedder
from core.llm.error_mapping import NO_TOOL_CALLS
from core.model_usage import text_written_in
from core.ports import ModelFinished, ModelRequest

MODEL_SECONDS = 30.0
ANOTHER_MODEL = "Try again, or choose another model."
SEE_SETTINGS = "See docs/operators/settings.md."
NO_MODEL = "Set THREADHAND_MODEL in .env."
NO_VECTORS = "Correct THREADHAND_EMBEDDING_MODEL or the key of its provider; without it knowledge is searched by words."
ANSWER_TOKENS = 16
"""The length of the requested answer, which is the smallest that every provider accepts."""
WINDOW_TOKENS_MAX = 14_000
"""The most tokens of the request that tests the context window. Threadhand needs a window of at least this size."""
WINDOW_ANSWER_TOKENS = 200
WINDOW_SECONDS = 9.0
CUT_REMEDY = "Raise the window of the service (in Ollama: num_ctx), or set THREADHAND_CONTEXT_TOKENS to its size."
_WORD = "marmalade"
_LONG_LINE = "This line is here only to make the text longer than a small window.\n"
_NAMES_SHOWN_MAX = 6
_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "report_ready",
        "description": "Reports that the model is ready.",
        "parameters": {"type": "object", "properties": {}},
    },
}
OLLAMA_URL = "http://127.0.0.1:11434/v1"
_MODEL_LISTS = {
    **{prefix.rstrip("/"): url for prefix, url in OPENAI_PROTOCOL_PROVIDERS.items()},
    "anthropic": "https://api.anthropic.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "deepseek": "https://api.deepseek.com",
    "mistral": "https://api.mistral.ai/v1",
    "xai": "https://api.x.ai/v1",
}


async def check_models(client: ServiceClient, settings: Settings) -> tuple[Finding, ...]:
    """Asks the model and its fallbacks for a few tokens, with a tool if the dialect sends tools."""
    return await run_in_parallel(build_model_checks(client, settings), seconds=MODEL_SECONDS)


def build_model_checks(client: ServiceClient, settings: Settings, *, is_free: bool = False) -> list[Check]:
    """Returns a check for the model and for each of its fallbacks.

    `is_free`: ask no model, and look only at its provider's list of models."""
    if not settings.model:
        return [] if is_free else [blocking_check("model", lambda: check_model_keys(settings))]
    check = _check_list if is_free else _check_model
    return [Check("model", partial(check, client, model, settings), model, ANOTHER_MODEL) for model in settings.models]


def check_model_keys(settings: Settings) -> tuple[Finding, ...]:
    """Checks without a network that the model is chosen and has its key."""
    if not settings.model:
        return (Finding("fail", "model", "is not chosen, so runs cannot start.", NO_MODEL),)
    if problem := _key_problem(settings.model, settings):
        return (problem,)
    return (Finding("ok", "model", f"{settings.model} has its endpoint, or its key if it needs one."),)


def _key_problem(model: str, settings: Settings) -> Finding | None:
    """Returns a finding if runs would fail because the model's key is missing. Ollama, for example, needs none."""
    try:
        build_provider_client(model, settings)
    except ConfigurationError as error:
        remedy = f"Set {provider_key_name(model)}, or THREADHAND_LLM_API_KEY."
        return Finding("fail", "model", str(error), remedy)
    return None


async def _check_list(client: ServiceClient, model: str, settings: Settings) -> tuple[Finding, ...]:
    status, names = await list_models(client, model, settings)
    if status in {401, 403}:
        return (_refused_key(model, settings),)
    if not names or _bare(model) in {_bare(name) for name in names}:
        return ()
    fact = f"{_endpoint(model, settings)} does not list {model}, which may work all the same."
    return (Finding("fail", "model", fact, "`threadhand doctor` tries it and names the others."),)


def _refused_key(model: str, settings: Settings) -> Finding:
    remedy = f"Correct THREADHAND_LLM_API_KEY or {provider_key_name(model) or 'the key of its provider'}."
    return Finding("fail", "model", f"{_endpoint(model, settings)} refuses the key of {model}.", remedy)


def _endpoint(model: str, settings: Settings) -> str:
    return settings.llm_base_url or f"the provider of {model}"


async def _check_model(client: ServiceClient, model: str, settings: Settings) -> tuple[Finding, ...]:
    if problem := _key_problem(model, settings):
        return (problem,)
    has_tools = select_dialect(model, settings.dialect).name == "native"
    request = ModelRequest(
        model=model,
        messages=({"role": "user", "content": "Answer with OK."},),
        tools=(_TOOL,) if has_tools else (),
        output_tokens_max=ANSWER_TOKENS,
        is_streamed=settings.stream,
    )
    try:
        provider = build_provider_client(model, settings)
        try:
            accepted = await _accepted_tools(provider, request)
            window = await _check_window(provider, model, settings)
        finally:
            await provider.close()
    except ConfigurationError as error:
        return (Finding("fail", "model", str(error), SEE_SETTINGS),)
    except ModelError as error:
        return (await _refusal(client, model, settings, error),)
    return (Finding("ok", "model", f"{model} answers and accepts {accepted}."), window)


async def _check_window(provider: ProviderClient, model: str, settings: Settings) -> Finding:
    """Returns a finding about the model's context window. If the service is the operator's own, asks about a word at
    the beginning of a long request, because some services truncate such requests without an error."""
    policy = (await load_model_specs(settings)).context_policy
    limit = policy.limit_of(model)
    known = Finding("note" if limit.source == ASSUMED else "ok", "window", policy.window_text(model))
    if not settings.llm_base_url:
        return known
    lines = min(limit.room // 2, WINDOW_TOKENS_MAX) // count_text(_LONG_LINE)
    text = f"The secret word is {_WORD}.\n{_LONG_LINE * lines}Which secret word does the first line name?"
    request = ModelRequest(
        model=model,
        messages=({"role": "user", "content": text},),
        output_tokens_max=WINDOW_ANSWER_TOKENS,
        is_streamed=settings.stream,
    )
    written = ""
    try:
        async with asyncio.timeout(WINDOW_SECONDS), aclosing(provider.stream(request)) as deltas:
            async for delta in deltas:
                written += text_written_in(delta)
                if isinstance(delta, ModelFinished) and delta.usage is not None:
                    policy.observed.observe(request, delta.usage)
    except (TimeoutError, ModelError) as error:
        fact = f"{policy.window_text(model)} {model} does not answer a long request: {type(error).__name__}."
        return Finding("note", "window", fact, CUT_REMEDY)
    if _WORD in written.lower():
        return known
    if policy.limit_of(model) != limit:
        return Finding("fail", "window", f"{settings.llm_base_url} cuts long requests to {model}.", CUT_REMEDY)
    if written.strip():
        return Finding("note", "window", f"{model} does not know the beginning of a long request.", CUT_REMEDY)
    return known


async def _accepted_tools(provider: ProviderClient, request: ModelRequest) -> str:
    """Reads the start of a response. If the model refuses tools, asks again without them, as runs do. Returns what the
    model accepts."""
    try:
        async with aclosing(provider.stream(request)) as deltas:
            async for _ in deltas:
                break
    except ModelRejected as error:
        if str(error) != NO_TOOL_CALLS or not request.tools:
            raise
        return await _accepted_tools(provider, replace(request, tools=()))
    return "tools" if request.tools else "tools written as text"


async def _refusal(client: ServiceClient, model: str, settings: Settings, error: ModelError) -> Finding:
    """Returns a finding about what is wrong: the endpoint, the key, or the name of the model."""
    status, names = await list_models(client, model, settings)
    endpoint = _endpoint(model, settings)
    if status is None and isinstance(error, ModelUnavailable):
        return untested_finding("model", endpoint)
    facts = " ".join((error.detail or str(error)).split())[:300]
    if status in {401, 403}:
        return _refused_key(model, settings)
    if names and _bare(model) not in {_bare(name) for name in names}:
        shown = ", ".join(names[:_NAMES_SHOWN_MAX])
        more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else ""
        remedy = f"Set THREADHAND_MODEL to one that it has: {shown}{more}."
        return Finding("fail", "model", f"{endpoint} does not have {model}.", remedy)
    remedy = f"Correct THREADHAND_MODEL or {provider_key_name(model) or 'the credentials of its provider'}."
    return Finding("fail", "model", f"{model} refuses: {facts}", remedy)


def _bare(model: str) -> str:
    return model.rpartition("/")[2]


async def list_models(client: ServiceClient, model: str, settings: Settings) -> tuple[int | None, tuple[str, ...]]:
    """Returns the HTTP status and the names of the models that the endpoint of `model` has, which costs nothing.

    The status is None if the endpoint does not answer or is unknown."""
    provider = model.partition("/")[0] if "/" in model else ""
    variable = provider_key_name(model)
    if not provider and variable:
        provider = variable.removesuffix("_API_KEY").lower()
    own = OLLAMA_URL if provider.startswith("ollama") else ""
    url = settings.llm_base_url or own or _MODEL_LISTS.get(provider, "")
    if not url:
        return None, ()
    named = settings.provider_keys.get(variable or "")
    key = settings.llm_api_key.get_secret_value() or (named.get_secret_value() if named else "")
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    if provider == "anthropic" and not settings.llm_base_url:
        reply = await client.call("GET", f"{url}/models", headers=headers)
    else:
        reply = await client.call("GET", f"{url}/models", f"Bearer {key}" if key else "")
    names = [str(row.get("id", "")) for row in json_objects(reply.body.get("data"))]
    return reply.status, tuple(sorted(name for name in names if name))


async def check_embedding_model(settings: Settings) -> tuple[Finding, ...]:
    """Requests the embedding of one word if an embedding model is set."""
    model = settings.embedding_model
    if not model:
        return ()
    try:
        client = build_embedding_client(model, settings)
    except ConfigurationError as error:
        return (Finding("fail", "meaning", str(error), NO_VECTORS),)
    try:
        (vector,) = await ModelEmbedder(client, model).embed(["word"], spent=lambda _model, _usage: None)
    except ModelError as error:
        fact = " ".join((error.detail or str(error)).split())
        return (Finding("fail", "meaning", f"{model} makes no vectors: {fact}.", NO_VECTORS),)
    finally:
        await client.close()
    return (Finding("ok", "meaning", f"{model} makes vectors of {len(vector)} numbers."),)
