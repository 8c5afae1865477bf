"""Parses responses of OpenAI-compatible endpoints: stream chunks, whole responses and errors.

The input is untrusted."""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, cast

import jiter
from pydantic_core import to_json as pydantic_to_json

from core.domain.errors import AnswerRejected, ModelUnavailable
from core.domain.threads import Usage
from core.llm import error_mapping
from core.llm.error_mapping import ErrorResponse, to_model_error
from core.llm.reasoning import ReasoningCollector, ReasoningOrigin, json_fields
from core.llm.thinking import ThinkingReader
from core.ports import ModelDelta, ModelFinished, TextDelta, ThinkingDelta, ToolCallDelta

log = logging.getLogger(__name__)

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]")


class SurrogateJoiner:
    """Turns the streamed texts of one answer into valid Unicode.

    Some servers split a surrogate pair across two chunks. A high surrogate at the end of a piece is held back until the
    next piece of the same text arrives."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str | int, str] = {}

    def joined(self, place: str | int, piece: str) -> str:
        """Returns the next piece of a text as valid Unicode.

        `place` identifies the text that the piece belongs to, such as `content` or a call's index. A high surrogate at
        the end of the piece is held back for the next piece. A lone surrogate becomes a replacement character, or is
        dropped at the end of the text."""
        if not self._waiting and (piece.isascii() or _HALF.search(piece) is None):
            return piece
        whole = self._waiting.pop(place, "") + piece if piece else ""
        if _FIRST_HALF.match(whole, len(whole) - 1):
            self._waiting[place] = whole[-1]
            whole = whole[:-1]
        return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
ERROR_TEXT_CHARACTERS_MAX = 2_000
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
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    **dict.fromkeys(
        ("content_filtered", "safety", "recitation", "blocklist", "prohibited_content", "spii", "sensitive", "refusal"),
        "content_filter",
    ),
}  # fmt: skip
"""The last eight are those of Bedrock, Gemini, GLM and Claude."""
_FAILURES = frozenset({"error", "insufficient_system_resource", "abort", "network_error"})
"""How OpenRouter, DeepSeek, vLLM and GLM end an answer that broke at their side."""
_UNREADABLE = re.compile(r"malformed_(?:function|tool)_call|unexpected_tool_call", re.IGNORECASE)
"""How Gemini ends an answer whose call it cannot read."""


class AnswerReader:
    """Reads the chunks of one answer, and collects the finish reason, the usage, the reasoning and whether the model
    called tools."""

    __slots__ = (
        "_finish", "_halves", "_has_calls", "_late_thinkers",
        "_model", "_reasoning", "_thoughts", "_usage",
    )  # fmt: skip

    def __init__(
        self, origin: ReasoningOrigin, late_thinkers: set[str], *, is_library: bool = False
    ) -> None:
        """`late_thinkers` are the models whose last answer had only the end mark of its thinking, kept up to date."""
        self._reasoning = ReasoningCollector(origin, is_library=is_library)
        self._model, self._late_thinkers = origin.model, late_thinkers
        self._finish = ""
        self._halves = SurrogateJoiner()
        self._has_calls = False
        self._thoughts = ThinkingReader(expects_end=origin.model in late_thinkers)
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the service has sent a finish reason."""
        return bool(self._finish)

    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]:
        """Returns the deltas of a chunk or of a whole response. Raises ModelError if the body reports an error."""
        more = json_fields(body.get("x_groq"))
        if body.get("error") or more.get("error"):
            raise to_model_error(parse_error_body(body if body.get("error") else more))
        choices = body.get("choices")
        if choices is None and _is_bare_error(body):
            raise to_model_error(parse_error_body(body))
        chosen = cast("list[object]", choices) if isinstance(choices, list) else []
        choice = json_fields(chosen[0] if chosen else None)
        # Groq and Kimi put the usage of a streamed answer elsewhere
        if usage := json_fields(body.get("usage") or more.get("usage") or choice.get("usage")):
            self._usage = parse_usage(usage)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason
        # some servers send both; the message then repeats the text of all deltas
        delta = choice.get("delta")
        return self._said(json_fields(choice.get("message") if delta is None else delta))

    def cut_off(self) -> None:
        """Ends the answer as if it had reached its length limit."""
        self._finish = "length"

    def flush(self) -> Sequence[ModelDelta]:
        """Returns the text that was held back and the reasoning, after all chunks were read."""
        if self._thoughts.has_end_only:
            self._late_thinkers.add(self._model)
        else:
            self._late_thinkers.discard(self._model)
        return (*self._thoughts.flush(), *self._reasoning.news())

    def finished(self) -> ModelFinished:
        """Returns the last delta, with the finish reason and the usage.

        If the model called tools, a finish reason that is missing or "stop" becomes "tool_calls", because some servers
        do not report it. Raises ModelUnavailable if the finish reason says that the service aborted the answer, and
        AnswerRejected if it could not read the model's call."""
        if _UNREADABLE.search(self._finish):
            raise AnswerRejected(error_mapping.UNREADABLE_CALL, detail=self._finish[:100])
        if self._finish.lower() in _FAILURES:
            raise ModelUnavailable(
                error_mapping.ANSWER_BROKE_OFF, detail=f"finish_reason {self._finish}"
            )
        reason = _REASONS.get(self._finish.lower(), "stop")
        if reason == "stop" and self._has_calls:
            reason = "tool_calls"
        return ModelFinished(finish_reason=reason, usage=self._usage)

    def _said(self, said: dict[str, object]) -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        self._reasoning.read(said)
        thought = said.get("reasoning_content") or said.get("reasoning")
        if isinstance(thought, str) and (thought := self._halves.joined("thought", thought)):
            deltas.append(ThinkingDelta(text=thought))
            self._thoughts.has_thought = True
        for key in ("content", "refusal"):
            text = said.get(key)
            if isinstance(text, list | dict):
                text = _joined(cast("list[object]", text if isinstance(text, list) else [text]))
            if isinstance(text, str) and (text := self._halves.joined(key, text)):
                deltas += self._thoughts.read(text) if key == "content" else (TextDelta(text=text),)
        for position, call in enumerate(_calls(said)):
            if isinstance(call, dict):
                self._has_calls = True
                known = cast(dict[str, object], call)
                self._reasoning.read_call(_place(known, position), known)
                deltas += self._reasoning.news()
                deltas.append(_call_delta(known, position, self._halves))
        return deltas


def _calls(said: dict[str, object]) -> list[object]:
    """Returns the raw tool calls. Older servers send a single `function_call` without an id instead of `tool_calls`."""
    calls, only = said.get("tool_calls"), said.get("function_call")
    if isinstance(calls, list):
        return cast(list[object], calls)
    return [{"index": 0, "function": only}] if isinstance(only, dict) else []


def _joined(parts: list[object]) -> str:
    """Returns the concatenated text of content parts, which some servers send instead of a string, without thinking."""
    fields = (json_fields({"text": part} if isinstance(part, str) else part) for part in parts)
    texts = (one.get("text") for one in fields if one.get("type") not in ("thinking", "reasoning"))
    return "".join(text for text in texts if isinstance(text, str))


def _is_bare_error(body: dict[str, object]) -> bool:
    """Returns whether the body is an error without the field `error`, as vLLM, FastAPI and DashScope send it."""
    return body.get("object") == "error" or "detail" in body or {"code", "message"} <= body.keys()


def _call_delta(call: dict[str, object], position: int, halves: SurrogateJoiner) -> ToolCallDelta:
    call_id, place = call.get("id"), _place(call, position)
    named = json_fields(call.get("function"))
    name, arguments = named.get("name"), named.get("arguments")
    return ToolCallDelta(
        index=place,
        call_id=call_id if isinstance(call_id, str) and call_id else None,
        name=name if isinstance(name, str) and name else None,
        arguments=halves.joined(place, _arguments_text(arguments)),
    )


def _place(call: dict[str, object], position: int) -> int:
    index = call.get("index")
    return index if isinstance(index, int) else position


def _arguments_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        # Ollama sends the arguments as an object instead of a JSON text
        return to_json(cast(object, arguments)).decode()
    return ""


def parse_usage(usage: dict[str, object]) -> Usage:
    """Returns the token counts, under the names of either API, and the cost if the provider reports it (OpenRouter).

    Implausible values count as 0."""
    details = json_fields(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    # DeepSeek and Kimi name the cached tokens beside the others
    cached = {**usage, **details}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens") or usage.get("input_tokens")),
        cached_tokens=_count(cached.get("cached_tokens") or cached.get("prompt_cache_hit_tokens")),
        output_tokens=_count(usage.get("completion_tokens") or usage.get("output_tokens")),
        cost_usd=_figure(usage.get("cost"), COST_USD_MAX),
    )


def _count(value: object) -> int:
    return int(_figure(value, TOKENS_MAX))


def _figure(value: object, most: float) -> float:
    """Returns the number, or 0 if the value is not a number between 0 and `most`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 <= value <= most else 0.0


def parse_error_body(
    body: object, *, status: int = 0, retry_after_seconds: float | None = None
) -> ErrorResponse:
    """Parses an error body, which may be an object or a text under `error`, or only a message."""
    code, message = "", ""
    if isinstance(body, dict):
        outer = cast(dict[str, object], body)
        inner = outer.get("error", outer)
        if isinstance(inner, dict):
            facts = cast(dict[str, object], inner)
            code = str(facts.get("code") or facts.get("type") or "")
            said = facts.get("message") or facts.get("detail") or facts.get("msg")
            message = str(said or ("" if code else facts or ""))
            if failed := facts.get("failed_generation"):
                message = f"{message} The model wrote: {failed}"
        else:
            message = str(inner)
    elif isinstance(body, str):
        message = body
    return ErrorResponse(
        status=status,
        code=code[:100],
        message=message[:ERROR_TEXT_CHARACTERS_MAX],
        retry_after_seconds=retry_after_seconds,
    )


def to_json(value: object) -> bytes:
    """Encodes a value as JSON for a request. Lone surrogates are escaped."""
    try:
        return pydantic_to_json(value)
    except ValueError:
        return json.dumps(value).encode()


LINE_BYTES_MAX = 8 * 1024 * 1024
_OTHER_LINES = (b":", b"event:", b"id:", b"retry:", b"\r")
"""How the lines of a stream begin that are no data."""


class BodyReader(Protocol):
    """Reads the JSON objects of one answer."""

    @property
    def is_finished(self) -> bool: ...
    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]: ...
    def cut_off(self) -> None: ...
    def flush(self) -> Sequence[ModelDelta]: ...
    def finished(self) -> ModelFinished: ...


class ServerSentEventReader:
    """Splits a stream of server-sent events into lines and reads the data of each event.

    Holds back an incomplete last line until the rest arrives. `is_over` is True after the server has sent [DONE]."""

    __slots__ = ("_answer", "_pending", "_pending_bytes", "_stray", "is_over")

    def __init__(self, answer: BodyReader) -> None:
        self._answer = answer
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._stray = b""
        self.is_over = False

    def feed(self, piece: bytes) -> Iterator[ModelDelta]:
        """Yields the deltas of all lines that the piece completes. Ignores everything after [DONE].

        A line that is too long ends the answer like a length limit. Raises ModelError if an event is not a valid part
        of an answer."""
        *whole, rest = piece.split(b"\n")
        if whole and self._pending:
            whole[0] = b"".join((*self._pending, whole[0]))
            self._pending, self._pending_bytes = [], 0
        for line in whole:
            if line.startswith(b"data:"):
                yield from self._read(line[5:].strip())
                if self.is_over:
                    return
            elif line and not self._stray and not line.startswith(_OTHER_LINES):
                self._stray = line[:ERROR_TEXT_CHARACTERS_MAX]
        if rest:
            self._pending.append(rest)
            self._pending_bytes += len(rest)
            if self._pending_bytes > LINE_BYTES_MAX:
                log.warning("an answer is not read on: a line of its stream is too long")
                self._answer.cut_off()
                self.is_over = True

    def close(self) -> Iterator[ModelDelta]:
        """Yields the remaining deltas after the stream has ended, even if its last line has no line break.

        Raises ModelUnavailable if the stream ended before the answer did, or was no stream but a web page, for example.
        """
        if self._pending and not self.is_over:
            yield from self.feed(b"\n")
        if not self.is_over and not self._answer.is_finished:
            stray = self._stray.decode("utf-8", "replace")
            raise ModelUnavailable(
                error_mapping.UNREADABLE_RESPONSE if stray else error_mapping.ANSWER_BROKE_OFF,
                detail=f"the stream ended without its end {stray}".strip(),
            )
        yield from self._answer.flush()

    def _read(self, content: bytes) -> Sequence[ModelDelta]:
        if content == b"[DONE]":
            self.is_over = True
        elif content:
            return self._answer.read(json_object(content))
        return ()


def json_object(content: bytes) -> dict[str, object]:
    """Parses a JSON object. Raises ModelUnavailable if the content is anything else."""
    try:
        body = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(
            error_mapping.UNREADABLE_RESPONSE, detail=f"not JSON: {error}"
        ) from error
    if not isinstance(body, dict):
        raise ModelUnavailable(error_mapping.UNREADABLE_RESPONSE, detail="not a JSON object")
    return cast(dict[str, object], body)


def _parsed(content: bytes) -> object:
    """Parses JSON. Accepts lone surrogates, because the other half of the pair may follow in the next chunk, bytes that
    are no UTF-8, and control characters in strings."""
    try:
        return cast(object, jiter.from_json(content, cache_mode="keys"))
    except ValueError:
        return cast(object, json.loads(content.decode("utf-8", "replace"), strict=False))
