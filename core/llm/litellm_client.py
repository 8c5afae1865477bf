"""A model client for all providers that litellm supports."""

import asyncio
import importlib
import io
import json
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

from core.domain.errors import ModelError, ModelRejected, ModelUnavailable
from core.domain.json import json_fields
from core.domain.threads import Usage
from core.failpoints import Failpoint
from core.llm import error_mapping
from core.llm.error_mapping import ErrorResponse, parse_retry_after, to_model_error
from core.llm.message_rules import adapt_messages
from core.llm.openai_answer import AnswerReader, parse_error_body
from core.llm.openai_request import CLAUDE, cache_mark_places, with_cache_mark
from core.llm.reasoning import ReasoningOrigin, build_wire_message, provider_of
from core.llm.thinking import ThinkingHabit
from core.ports import ModelDelta, ModelRequest

log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT")

REQUEST = Failpoint("llm.litellm.request")
EMBED = Failpoint("llm.litellm.embed")
DRAW = Failpoint("llm.litellm.draw")
DEADLINE_SECONDS = 1800.0
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_CODES: Mapping[str, ErrorResponse] = {
    "ContextWindowExceededError": ErrorResponse(code="context_length_exceeded"),
    "ContentPolicyViolationError": ErrorResponse(code="content_policy_violation"),
    "Timeout": ErrorResponse(status=408),
    "BudgetExceededError": ErrorResponse(status=402),
}
"""Maps litellm's exception classes to error responses. Other exceptions are classified by their HTTP status."""
_PACKAGES: Mapping[str, str] = {"google": "litellm[google]"}
"""Maps a Python module to the package to install, if it has another name. Vertex needs Google's modules."""

_TELL_THEIR_END = frozenset(
    ("openai", "azure", "anthropic", "openrouter", "deepseek", "gemini", "mistral", "groq", "xai")
)
_TELL_THEIR_COST = ("openrouter/",)


class _Answer(Protocol):
    """A response of litellm, which has no usable types. Its module is used untyped."""

    def model_dump(self, *, exclude_none: bool) -> dict[str, object]: ...


class LiteLLMClient:
    """Implements the LLM port with litellm, which is imported at the first call because the import takes seconds.

    `provider_keys` are environment variables with the names that the providers define (ANTHROPIC_API_KEY ...). If set,
    `api_key` and `base_url` are sent with every call. A call fails if no data arrives for `silence_seconds`, or after
    DEADLINE_SECONDS in total."""

    def __init__(
        self,
        *,
        provider_keys: Mapping[str, str] | None = None,
        api_key: str = "",
        base_url: str = "",
        silence_seconds: float = 180,
    ) -> None:
        self._keys = dict(provider_keys or {})
        self._api_key = api_key
        self._base_url = base_url
        self._provider = provider_of(base_url) or "litellm"
        self._silence_seconds = silence_seconds
        self._habits: dict[str, ThinkingHabit] = {}
        self._module: ModuleType | None = None
        self._importing = asyncio.Lock()

    async def close(self) -> None:
        """Closes litellm's clients, which all instances in this process share. A later call opens new clients."""
        module, self._module = self._module, None
        if module is not None:
            await module.close_litellm_async_clients()
            # otherwise litellm would reuse the closed clients
            module.in_memory_llm_clients_cache.flush_cache()
            # the client of Anthropic's models is in no cache; litellm makes another one at its next use
            if (client := vars(module).pop("module_level_aclient", None)) is not None:
                await client.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Implements `LLM.stream`."""
        reader = AnswerReader(ReasoningOrigin(self._provider, request.model), self._habits, is_library=True)
        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        try:
            module = await self._loaded()
            async with aclosing(self._chunks(module, request, deadline)) as chunks:
                async for chunk in chunks:
                    for delta in reader.read(chunk):
                        yield delta
        except ModelError:
            raise
        except Exception as error:  # litellm raises errors of many libraries
            raise self._translated(error) from error
        if not reader.is_finished:
            raise ModelUnavailable(error_mapping.ANSWER_BROKE_OFF, detail="the stream ended without its end")
        for delta in reader.flush():
            yield delta
        finished = reader.build_last_delta()
        usage = finished.usage
        if usage is not None and not (usage.cost_usd and request.model.startswith(_TELL_THEIR_COST)):
            # litellm reports its own estimate as if it were the provider's figure, so the cost counts as an estimate
            cost = usage.cost_usd or _estimate_cost(module, request.model, usage)
            finished = replace(finished, usage=replace(usage, cost_usd=cost, estimated_usd=cost))
        yield finished

    async def embed(self, model: str, texts: Sequence[str]) -> dict[str, object]:
        """Returns the provider's response in the format of OpenAI's embeddings API. Raises ModelError."""
        wanted = {"model": model, "input": list(texts), "encoding_format": "float"}
        answer = await self._whole(EMBED, lambda module: module.aembedding, wanted)
        return answer.model_dump(exclude_none=True)

    async def draw(self, model: str, prompt: str, picture: bytes | None) -> dict[str, object]:
        """Generates a picture, or edits `picture` if it is given. Raises ModelError.

        Returns a response in the format of OpenAI's images API. Its `cost_usd` is litellm's estimate of the cost; it is
        missing if litellm does not know the price."""
        wanted: dict[str, object] = {"model": model, "prompt": prompt, "n": 1}
        if picture is None:
            answer = await self._whole(DRAW, lambda module: module.aimage_generation, wanted)
        else:
            edit = {**wanted, "image": io.BytesIO(picture)}
            answer = await self._whole(DRAW, lambda module: module.aimage_edit, edit)
        hidden = cast(Mapping[str, object], getattr(answer, "hidden_params", None) or {})
        cost = hidden.get("response_cost")
        known = {} if cost is None else {"cost_usd": cost}
        return answer.model_dump(exclude_none=True) | known

    async def _whole(
        self,
        failpoint: Failpoint,
        function: Callable[[ModuleType], Callable[..., Awaitable[_Answer]]],
        wanted: Mapping[str, object],
    ) -> _Answer:
        """Calls a litellm function whose response is not streamed. Raises ModelError."""
        deadline = asyncio.get_running_loop().time() + self._silence_seconds
        try:
            module = await self._loaded()
            with failpoint:
                async with asyncio.timeout_at(deadline):
                    return await function(module)(**self._with_access(wanted))
        except Exception as error:  # litellm raises errors of many libraries
            raise self._translated(error) from error

    async def _chunks(
        self, module: ModuleType, request: ModelRequest, deadline: float
    ) -> AsyncGenerator[dict[str, object], None]:
        silence = _SilenceLimit(self._silence_seconds, deadline, request.on_received)
        with REQUEST:
            answer = await silence.applied(module.acompletion(**self._arguments(request, module)))
        if not request.is_streamed:
            yield cast(_Answer, answer).model_dump(exclude_none=True)
            return
        chunks = cast(AsyncIterator[_Answer], answer)
        silence.watch(chunks)
        try:
            while (chunk := await silence.applied(anext(chunks, None))) is not None:
                yield chunk.model_dump(exclude_none=True)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        provider = getattr(chunks, "custom_llm_provider", None)
        # litellm invents a finish reason if the provider sent none
        own_reason = getattr(chunks, "received_finish_reason", "")
        if provider in _TELL_THEIR_END and own_reason is None:
            raise ModelUnavailable(error_mapping.ANSWER_BROKE_OFF, detail="the stream ended without its end")
        own = {"native_finish_reason": own_reason or None}
        yield {"choices": [{"provider_specific_fields": own}]}

    async def _loaded(self) -> ModuleType:
        async with self._importing:
            if self._module is None:
                self._module = await asyncio.to_thread(_import, self._keys)
            return self._module

    def _arguments(self, request: ModelRequest, module: ModuleType) -> dict[str, object]:
        answer_tokens = request.output_tokens_max
        # otherwise litellm leaves a Claude that thinks little room for the answer
        if CLAUDE.search(request.model) and (most := _answer_tokens_max(module, request.model)):
            answer_tokens = min(answer_tokens or most, most)
        is_claude = CLAUDE.search(request.model) is not None
        accepted = adapt_messages(request.model, request.messages, has_images_in_results=is_claude)
        origin = ReasoningOrigin(self._provider, request.model)
        wire = [build_wire_message(one, origin) for one in accepted]
        for place in cache_mark_places(request):
            wire[place] = with_cache_mark(wire[place])
        wanted: dict[str, object] = {
            "model": request.model,
            "messages": wire,
            "stream": request.is_streamed,
            "stream_options": {"include_usage": True} if request.is_streamed else None,
            "tools": list(request.tools) or None,
            "temperature": request.temperature,
            "max_tokens": answer_tokens,
            "stop": list(request.stop_sequences) or None,
            "num_retries": 0,
        }
        if (options := request.options) is not None:
            wanted["reasoning_effort"] = options.effort
            wanted["tool_choice"] = options.tool_choice if request.tools else None
            wanted |= options.extra
        return self._with_access(wanted)

    def _with_access(self, wanted: Mapping[str, object]) -> dict[str, object]:
        """Adds the key, the address and the limits of a call, and leaves out what is None."""
        common = {
            "api_key": self._api_key or None,
            "api_base": self._base_url or None,
            "timeout": self._silence_seconds,
            "max_retries": 0,
            "drop_params": True,
        }
        return {key: value for key, value in {**common, **wanted}.items() if value is not None}

    def _translated(self, error: Exception) -> ModelError:
        if isinstance(error, TimeoutError):
            late = "litellm did not answer in time"
            return ModelUnavailable(error_mapping.TIMED_OUT, detail=late, is_late=True)
        log.debug("litellm raised %s", type(error).__name__, exc_info=error)
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__context__) is not None:
            chain.append(cause)
        if missing := next((one for one in chain if isinstance(one, ModuleNotFoundError)), None):
            package = _PACKAGES.get(str(missing.name).partition(".")[0], missing.name)
            return ModelRejected(error_mapping.NO_MODULE, detail=f"{missing}: pip install '{package}'")
        bodies = (json_fields(getattr(one, "body", None)) for one in chain)
        body = next(filter(None, bodies), dict[str, object]())
        base = _CODES.get(type(error).__name__) or _base(chain, has_body=bool(body))
        text = str(error)
        if not body:
            # litellm quotes what the provider said in its own message
            with suppress(ValueError, RecursionError):
                body = json_fields(json.JSONDecoder().raw_decode(text, text.index("{"))[0])
        told = parse_error_body(body)
        message, upstream = told.message or text, told.upstream
        for key in filter(None, (self._api_key, *self._keys.values())):
            message, upstream = message.replace(key, "[key]"), upstream.replace(key, "[key]")
        headers = cast(Mapping[str, str], getattr(error, "litellm_response_headers", None) or {})
        return to_model_error(
            ErrorResponse(
                status=base.status,
                code=base.code or told.code or str(getattr(error, "code", None) or ""),
                message=message,
                upstream=upstream,
                retry_after_seconds=parse_retry_after(headers),
            )
        )


class _SilenceLimit:
    """Ends a wait for litellm if no data has arrived for `seconds`, or at the deadline.

    litellm yields no chunk for events without content and for comments, so the data is watched at its source."""

    def __init__(self, seconds: float, deadline: float, on_received: Callable[[], None]) -> None:
        self._seconds = seconds
        self._deadline = deadline
        self._on_received = on_received
        self._timer: asyncio.Timeout | None = None

    async def applied(self, work: Awaitable[AnswerT]) -> AnswerT:
        try:
            async with asyncio.timeout_at(self._next_limit()) as self._timer:
                return await work
        finally:
            self._timer = None

    def watch(self, chunks: object) -> None:
        """Watches the bytes of the stream's HTTP response, or the events if litellm does not show the response."""
        events = getattr(chunks, "completion_stream", None)
        response = getattr(events, "response", None)
        if hasattr(response, "aiter_bytes"):
            read = cast(Any, response).aiter_bytes
            cast(Any, response).aiter_bytes = lambda: self._watched(read())
        elif isinstance(events, AsyncIterable):
            cast(Any, chunks).completion_stream = self._watched(cast(AsyncIterable[object], events))

    async def _watched(self, parts: AsyncIterable[object]) -> AsyncGenerator[object, None]:
        try:
            async for part in parts:
                if self._timer is not None and not self._timer.expired():
                    self._timer.reschedule(self._next_limit())
                self._on_received()
                yield part
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()

    def _next_limit(self) -> float:
        return min(self._deadline, asyncio.get_running_loop().time() + self._seconds)


def _base(chain: Sequence[BaseException], *, has_body: bool) -> ErrorResponse:
    """Returns the HTTP status of an error, or only the provider's code if the error stood in an answer or its stream,
    because litellm makes up a status then: 422 in place of no code, and 500 in a stream of OpenAI's library."""
    statuses = [one for each in chain if (one := getattr(each, "status_code", None))] or [500]
    is_refusal = any(type(one).__name__ == "HTTPStatusError" for one in chain)
    first, last = statuses[0], statuses[-1]
    if is_refusal or not (isinstance(last, str) or last == 422 or has_body):
        return ErrorResponse(status=first if isinstance(first, int) else 500)
    return ErrorResponse(code=last if isinstance(last, str) else "")


def _answer_tokens_max(module: ModuleType, model: str) -> int:
    """Returns the longest answer of the model in tokens, or 0 if litellm does not know the model."""
    try:
        return int(module.get_model_info(model)["max_output_tokens"] or 0)
    except Exception as error:
        # litellm raises a bare Exception for a model that is not in its list
        log.debug("no limit for %s: %s", model, type(error).__name__)
        return 0


def _estimate_cost(module: ModuleType, model: str, usage: Usage) -> float:
    """Returns litellm's estimate of the cost in US dollars, or 0 if litellm does not know the model's price."""
    try:
        prompt, completion = module.cost_per_token(
            model=model,
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cached_tokens,
            cache_creation_input_tokens=usage.written_tokens,
        )
    except Exception as error:
        # litellm raises a bare Exception for a model that is not in its price list
        log.debug("no price for %s: %s", model, type(error).__name__)
        return 0.0
    return prompt + completion


def _import(keys: Mapping[str, str]) -> ModuleType:
    """Imports and configures litellm. Runs in a thread.

    Uses the price list in the litellm package, so that litellm does not download one."""
    environment = os.environ  # noqa: TID251 - litellm reads its settings only from the environment
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    for name, key in keys.items():
        environment.setdefault(name, key)
    module: Any = importlib.import_module("litellm")
    module.suppress_debug_info = True
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.WARNING)
    return module
