"""Reading what an OpenAI-compatible endpoint sends: chunks of a stream, whole answers, errors. Untrusted shapes."""

import json
from collections.abc import Sequence
from typing import Literal, cast

from pydantic_core import to_json as pydantic_to_json

from core.domain.errors import ModelUnavailable
from core.domain.threads import Usage
from core.llm import errors
from core.llm.errors import Refusal, error_of
from core.llm.surrogates import Halves
from core.llm.thoughts import Thoughts
from core.ports import ModelDelta, ModelFinished, TextDelta, ThinkingDelta, ToolCallDelta

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
TEXT_CHARACTERS_MAX = 2_000
TOKENS_MAX = 100_000_000
COST_USD_MAX = 100_000
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_FAILURES = frozenset({"error", "insufficient_system_resource", "abort"})
"""How OpenRouter, DeepSeek and vLLM end an answer that broke at their side."""


class AnswerReader:
    """Reads one answer, and collects what its end must tell: the finish reason, the usage, whether calls came."""

    __slots__ = ("_finish", "_halves", "_has_calls", "_thoughts", "_usage")

    def __init__(self) -> None:
        self._finish = ""
        self._halves = Halves()
        self._has_calls = False
        self._thoughts = Thoughts()
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether a finish reason came."""
        return bool(self._finish)

    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]:
        """The deltas of a chunk, or of a whole answer. Raises the ModelError that a body with an error tells of."""
        if body.get("error"):
            raise error_of(read_refusal(body))
        usage = body.get("usage")
        if isinstance(usage, dict):
            self._usage = read_usage(cast(dict[str, object], usage))
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            return ()
        choice = cast(list[object], choices)[0]
        if not isinstance(choice, dict):
            return ()
        choice = cast(dict[str, object], choice)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason
        # some send both: the message then is the whole of what the deltas have told
        said = choice.get("delta", choice.get("message"))
        return self._said(cast(dict[str, object], said)) if isinstance(said, dict) else ()

    def rest(self) -> Sequence[ModelDelta]:
        """What was held back, once all is read."""
        return self._thoughts.rest()

    def finished(self) -> ModelFinished:
        """The last delta. Some servers say "stop" after calls, others nothing at all. Raises ModelUnavailable where
        the service gave the answer up."""
        if self._finish in _FAILURES:
            raise ModelUnavailable(errors.BROKEN_OFF, detail=f"finish_reason {self._finish}")
        reason = _REASONS.get(self._finish.lower(), "stop")
        if reason == "stop" and self._has_calls:
            reason = "tool_calls"
        return ModelFinished(finish_reason=reason, usage=self._usage)

    def _said(self, said: dict[str, object]) -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        thought = said.get("reasoning_content") or said.get("reasoning")
        if isinstance(thought, str) and (thought := self._halves.joined("thought", thought)):
            deltas.append(ThinkingDelta(text=thought))
        for key in ("content", "refusal"):
            text = said.get(key)
            if isinstance(text, list):
                text = _joined(cast(list[object], text))
            if isinstance(text, str) and (text := self._halves.joined(key, text)):
                deltas += self._thoughts.read(text) if key == "content" else (TextDelta(text=text),)
        for position, call in enumerate(_calls(said)):
            if isinstance(call, dict):
                self._has_calls = True
                known = cast(dict[str, object], call)
                deltas.append(_call_delta(known, position, self._halves))
        return deltas


def _calls(said: dict[str, object]) -> list[object]:
    """Old servers call by `function_call`, once an answer and without an id."""
    calls, only = said.get("tool_calls"), said.get("function_call")
    if isinstance(calls, list):
        return cast(list[object], calls)
    return [{"index": 0, "function": only}] if isinstance(only, dict) else []


def _joined(parts: list[object]) -> str:
    """The text of content parts, as some servers send them."""
    texts = (cast(dict[str, object], part).get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _call_delta(call: dict[str, object], position: int, halves: Halves) -> ToolCallDelta:
    index, call_id, function = call.get("index"), call.get("id"), call.get("function")
    place = index if isinstance(index, int) else position
    named = cast(dict[str, object], function) if isinstance(function, dict) else {}
    name, arguments = named.get("name"), named.get("arguments")
    return ToolCallDelta(
        index=place,
        call_id=call_id if isinstance(call_id, str) and call_id else None,
        name=name if isinstance(name, str) and name else None,
        arguments=halves.joined(place, _arguments_text(arguments)),
    )


def _arguments_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        # Ollama sends the object itself
        return to_json(cast(object, arguments)).decode()
    return ""


def read_usage(usage: dict[str, object]) -> Usage:
    """Tokens, and the cost where the provider tells it (OpenRouter). A figure that cannot be one counts as
    not told."""
    details = usage.get("prompt_tokens_details")
    cached = (
        cast(dict[str, object], details).get("cached_tokens") if isinstance(details, dict) else 0
    )
    if not cached:
        cached = usage.get("prompt_cache_hit_tokens")
    cost = usage.get("cost")
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(cached),
        output_tokens=_count(usage.get("completion_tokens")),
        cost_usd=_figure(cost, COST_USD_MAX),
    )


def _count(value: object) -> int:
    return int(_figure(value, TOKENS_MAX))


def _figure(value: object, most: float) -> float:
    """0 for what cannot be one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 <= value <= most else 0.0


def read_refusal(
    body: object, *, status: int = 0, retry_after_seconds: float | None = None
) -> Refusal:
    """An error body in any of the shapes in use: an object or a text under `error`, or only a message."""
    code, message = "", ""
    if isinstance(body, dict):
        outer = cast(dict[str, object], body)
        inner = outer.get("error", outer)
        if isinstance(inner, dict):
            facts = cast(dict[str, object], inner)
            code = str(facts.get("code") or facts.get("type") or "")
            message = str(facts.get("message") or facts.get("detail") or facts.get("msg") or "")
        else:
            message = str(inner)
    elif isinstance(body, str):
        message = body
    return Refusal(
        status=status,
        code=code[:100],
        message=message[:TEXT_CHARACTERS_MAX],
        retry_after_seconds=retry_after_seconds,
    )


def to_json(value: object) -> bytes:
    """JSON as it goes over the wire; text that is no valid Unicode (half a surrogate pair) is escaped."""
    try:
        return pydantic_to_json(value)
    except ValueError:
        return json.dumps(value).encode()
