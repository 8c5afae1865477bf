"""Parses responses of OpenAI-compatible endpoints: stream chunks, whole responses and errors.

The input is untrusted."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, cast

import jiter
from pydantic_core import to_json as pydantic_to_json

from core.domain.errors import AnswerRejected, ModelError, ModelUnavailable
from core.domain.json import json_fields
from core.domain.threads import Usage
from core.llm import error_mapping
from core.llm.error_mapping import ErrorResponse, to_model_error
from core.llm.reasoning import ReasoningCollector, ReasoningOrigin
from core.llm.thinking import ThinkingHabit, ThinkingReader
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

    def join(self, place: str | int, piece: str) -> str:
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
_REASONS: Sequence[tuple[re.Pattern[str], FinishReason | type[ModelError]]] = (
    (re.compile(r"malformed|(?:unexpected|too_many)_tool_call|repetition"), AnswerRejected),
    (
        re.compile(r"filter|safety|recitation|blocklist|prohibited|spii|sensitive|refus|guardrail|toxic"),
        "content_filter",
    ),
    (re.compile(r"tool_calls|function_call|tool_use"), "tool_calls"),
    (re.compile(r"length|max_|limit|window|truncat|incomplete"), "length"),
    (re.compile(r"error|abort|cancel|insufficient|overload|time_?out"), ModelUnavailable),
)
"""The meaning of a finish reason by the words in it, because every service has its own reasons. The first match counts.
Without a match, the answer is complete. The first row includes Gemini's answer with a call that Gemini could not parse,
and vLLM's answer that repeats itself."""


def _meaning(reason: str) -> FinishReason | type[ModelError]:
    for words, kind in _REASONS:
        if words.search(reason.lower()):
            return kind
    return "stop"


AN_IMAGE = "(I answered with an image, which cannot be shown here.)"


class AnswerReader:
    """Reads the chunks of one answer, and collects the finish reason, the usage, the reasoning and whether the model
    called tools."""

    __slots__ = (
        "_finish", "_habits", "_halves", "_has_calls", "_has_image",
        "_model", "_reasoning", "_thoughts", "_usage",
    )  # fmt: skip

    def __init__(self, origin: ReasoningOrigin, habits: dict[str, ThinkingHabit], *, is_library: bool = False) -> None:
        """`habits` tells where the thinking of each model arrives. The reader updates it, so that no single answer can
        make a model "late" that has completed another one differently."""
        self._reasoning = ReasoningCollector(origin, is_library=is_library)
        self._model, self._habits = origin.model, habits
        self._finish = ""
        self._halves = SurrogateJoiner()
        self._has_calls = self._has_image = False
        self._thoughts = ThinkingReader(habits.get(origin.model, "unknown"))
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the service has sent a finish reason."""
        return bool(self._finish)

    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]:
        """Returns the deltas of a chunk or of a whole response. Raises ModelError if the body reports an error."""
        more = json_fields(body.get("x_groq"))
        choices = body.get("choices")
        choice = _chosen(choices)
        failed = choice if choice.get("error") else more if more.get("error") else body
        # vLLM, FastAPI and DashScope send errors without the field `error`
        is_bare = body.get("object") == "error" or "detail" in body
        is_bare = choices is None and (is_bare or {"code", "message"} <= body.keys())
        if failed.get("error") or is_bare:
            raise to_model_error(parse_error_body(failed))
        # Groq and Kimi put the usage of a streamed answer elsewhere
        if usage := json_fields(body.get("usage") or more.get("usage") or choice.get("usage")):
            self._usage = parse_usage(usage)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason
        if own := choice.get("provider_specific_fields"):
            # litellm calls a reason "stop" if it does not know it
            reason = str(json_fields(own).get("native_finish_reason"))
            self._finish = self._finish if _meaning(reason) == "stop" else reason
        return self._said(_message(choice))

    def cut_off(self) -> None:
        """Ends the answer as if it had reached its length limit."""
        self._finish = "length"

    def flush(self) -> Sequence[ModelDelta]:
        """Returns the text that was held back and the reasoning, after all chunks were read."""
        reason = _meaning(self._finish)
        deltas = self._thoughts.flush(is_cut_off=reason == "length")
        if self._thoughts.has_end_only:
            self._habits.setdefault(self._model, "late")
        elif self._thoughts.habit != "field" and self._thoughts.has_text and reason in ("stop", "tool_calls"):
            self._habits[self._model] = "plain"
        return (*deltas, *self._reasoning.take_snapshot())

    def build_last_delta(self) -> ModelFinished:
        """Returns the last delta, and "tool_calls" for "stop" after calls, because some servers do not report them.

        Raises ModelUnavailable if the service aborted the answer, and AnswerRejected if it could not read a call."""
        reason = _meaning(self._finish)
        if reason is AnswerRejected:
            is_endless = self._finish == "repetition"
            sentence = error_mapping.ENDLESS if is_endless else error_mapping.UNREADABLE_CALL
            raise AnswerRejected(sentence, detail=self._finish[:100])
        if not isinstance(reason, str):
            raise ModelUnavailable(error_mapping.ANSWER_BROKE_OFF, detail=f"finish_reason {self._finish}")
        is_silent = reason == "stop" and self._has_calls
        return ModelFinished(finish_reason="tool_calls" if is_silent else reason, usage=self._usage)

    def _said(self, said: dict[str, object]) -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        self._reasoning.read(said)
        thought = said.get("reasoning_content") or said.get("reasoning") or said.get("reasoning_text")
        if isinstance(thought, str) and (thought := self._halves.join("thought", thought)):
            deltas.append(ThinkingDelta(text=thought))
            self._thoughts.follow_field()
            self._habits[self._model] = "field"
        # litellm moves the refusal of a whole answer there
        own = json_fields(said.get("provider_specific_fields"))
        for key in ("content", "refusal"):
            text = said.get(key) or own.get(key)
            if isinstance(text, list | dict):
                # some servers send parts instead of a string
                parts = cast("list[object]", text if isinstance(text, list) else [text])
                fields = (json_fields({"text": part} if isinstance(part, str) else part) for part in parts)
                pieces = (part.get("text") for part in fields if part.get("type") not in ("thinking", "reasoning"))
                text = "".join(piece for piece in pieces if isinstance(piece, str))
            if isinstance(text, str) and (text := self._halves.join(key, text)):
                deltas += self._thoughts.read(text) if key == "content" else (TextDelta(text=text),)
        if said.get("images") and not self._has_image:
            self._has_image = True
            deltas.append(TextDelta(text=AN_IMAGE))
        for position, call in enumerate(_calls(said)):
            if isinstance(call, dict):
                self._has_calls = True
                known = cast(dict[str, object], call)
                self._reasoning.read_call(_place(known, position), known)
                deltas += self._reasoning.take_snapshot()
                call_id, place = known.get("id"), _place(known, position)
                named = json_fields(known.get("function")) or known
                name = named.get("name")
                arguments = named.get("arguments") or named.get("parameters") or named.get("input")
                deltas.append(
                    ToolCallDelta(
                        index=place,
                        call_id=call_id if isinstance(call_id, str) and call_id else None,
                        name=name if isinstance(name, str) and name else None,
                        arguments=self._halves.join(place, arguments_text(arguments)),
                    )
                )
        return deltas


def _chosen(choices: object) -> dict[str, object]:
    """Returns the first choice of a chunk, because some servers send several that nobody requested. If it has no calls,
    it gets the calls of choices without text: Copilot's API sends a text and each of its calls as separate choices.

    The chunks are not distinguished by this index, because some servers count the pieces of the only answer in it."""
    known = cast("list[object]", choices) if isinstance(choices, list) else []
    if len(known) < 2:
        return json_fields(known[0] if known else None)
    first, *others = sorted(map(json_fields, known), key=lambda one: _place(one, 0))
    said, more = _message(first), [one for one in map(_message, others) if not one.get("content")]
    calls = [*_calls(said)] or [call for one in more for call in _calls(one)]
    return {**first, "delta": {**said, "tool_calls": calls}}


def _message(choice: dict[str, object]) -> dict[str, object]:
    # some servers send both; the message then repeats the text of all deltas
    delta = choice.get("delta")
    return json_fields(choice.get("message") if delta is None else delta)


def _calls(said: dict[str, object]) -> list[object]:
    """Returns the raw tool calls. Some servers send one without a list, older ones a `function_call` without an id."""
    calls, only = said.get("tool_calls"), said.get("function_call")
    if calls and isinstance(calls, list | dict):
        return cast("list[object]", calls if isinstance(calls, list) else [calls])
    return [{"index": 0, "function": only}] if isinstance(only, dict) else []


def _place(call: dict[str, object], position: int) -> int:
    index = call.get("index")
    return index if isinstance(index, int) else position


def arguments_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    # Ollama sends the arguments as an object instead of a JSON text
    return to_json(cast(object, arguments)).decode() if isinstance(arguments, dict) else ""


def parse_usage(usage: dict[str, object]) -> Usage:
    """Returns the token counts, under the names of either API, and the cost if the provider reports it (OpenRouter).

    Implausible values count as 0."""
    details = json_fields(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    # DeepSeek and Kimi name the cached tokens beside the others
    cached = {**usage, **details}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens") or usage.get("input_tokens")),
        cached_tokens=_count(cached.get("cached_tokens") or cached.get("prompt_cache_hit_tokens")),
        written_tokens=_count(
            cached.get("cache_creation_input_tokens")  # litellm
            or cached.get("cache_creation_tokens")
            or cached.get("cache_write_tokens")  # OpenRouter
        ),
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


def parse_error_body(body: object, *, status: int = 0, retry_after_seconds: float | None = None) -> ErrorResponse:
    """Parses an error body, which may be an object or a text under `error`, or only a message."""
    code, message, upstream = "", "", ""
    inner = json_fields(body).get("error", body)
    if isinstance(inner, dict):
        facts = cast(dict[str, object], inner)
        code = str(facts.get("code") or facts.get("type") or "")
        said = facts.get("message") or facts.get("detail") or facts.get("msg")
        message = str(said or ("" if code else facts or ""))
        # besides the message, OpenRouter repeats the words of the upstream provider, and Gemini states how long to wait
        quoted = (json_fields(facts.get("metadata")).get("raw"), facts.get("details"))
        upstream = " ".join(str(one) for one in quoted if one)
        if failed := facts.get("failed_generation"):
            message = f"{message} The model wrote: {failed}"
    elif isinstance(body, str | dict):
        message = str(inner)
    return ErrorResponse(
        status=status,
        code=code[:100],
        message=message[:ERROR_TEXT_CHARACTERS_MAX],
        upstream=upstream[:ERROR_TEXT_CHARACTERS_MAX],
        retry_after_seconds=retry_after_seconds,
    )


def to_json(value: object) -> bytes:
    """Encodes a value as JSON for a request. Lone surrogates are escaped."""
    try:
        return pydantic_to_json(value)
    except ValueError:
        return json.dumps(value).encode()


LINE_BYTES_MAX = 8 * 1024 * 1024
_OTHER_LINES = (b":", b"event:", b"id:", b"retry:")
"""The prefixes of lines in a stream that contain no data."""


class BodyReader(Protocol):
    """Reads the JSON objects of one answer."""

    @property
    def is_finished(self) -> bool: ...
    def read(self, body: dict[str, object]) -> Sequence[ModelDelta]: ...
    def cut_off(self) -> None: ...
    def flush(self) -> Sequence[ModelDelta]: ...
    def build_last_delta(self) -> ModelFinished: ...


class ServerSentEventReader:
    """Splits a stream of server-sent events into lines and reads the data of each event.

    Lines end with LF, CR or CRLF. Each line of data is an event if it is JSON. Otherwise, the event continues up to a
    blank line. Holds back an incomplete last line. `is_over` is True after the server has sent [DONE]."""

    __slots__ = ("_answer", "_event", "_pending", "_stray", "_unread_bytes", "is_over")

    def __init__(self, answer: BodyReader) -> None:
        self._answer = answer
        self._event: list[bytes] = []
        self._pending: list[bytes] = []
        self._unread_bytes = 0
        self._stray = b""
        self.is_over = False

    def feed(self, piece: bytes) -> Iterator[ModelDelta]:
        """Yields the deltas of all lines that the piece completes. Ignores everything after [DONE].

        A line that is too long ends the answer like a length limit. Raises ModelError if an event is not a valid part
        of an answer."""
        lines = piece.splitlines(keepends=True)
        ends = (b"\n", b"\r")
        if self._pending and (lines[0].endswith(ends) or self._pending[-1].endswith(ends)):
            # a CR that ended the last piece may be the first half of a CRLF
            lines = b"".join((*self._pending, piece)).splitlines(keepends=True)
            self._pending, self._unread_bytes = [], sum(map(len, self._event))
        rest = b"" if piece.endswith(b"\n") else lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                yield from self._data(line[5:].strip())
            elif self._event or line not in ends:
                yield from self._line(line)
            if self.is_over:
                return
        if rest:
            self._pending.append(rest)
            self._unread_bytes += len(rest)
        if self._unread_bytes > LINE_BYTES_MAX:
            log.warning("an answer is not read on: a line or an event of its stream is too long")
            self._answer.cut_off()
            self.is_over = True

    def close(self) -> Iterator[ModelDelta]:
        """Yields the remaining deltas after the stream has ended, even if its last line has no line break.

        Raises ModelUnavailable if the stream ended before the answer did, or was no stream but, say, a web page."""
        if not self.is_over:
            yield from self.feed(b"\n\n")
        if not self.is_over and not self._answer.is_finished:
            stray = self._stray.decode("utf-8", "replace")
            raise ModelUnavailable(
                error_mapping.UNREADABLE_RESPONSE if stray else error_mapping.ANSWER_BROKE_OFF,
                detail=f"the stream ended without its end {stray}".strip(),
            )
        yield from self._answer.flush()

    def _line(self, line: bytes) -> Sequence[ModelDelta]:
        """Reads a line without data."""
        content = line.strip()
        if not content and self._event:
            event, self._event, self._unread_bytes = b"\n".join(self._event), [], 0
            return self._answer.read(json_object(event))
        if content.startswith(b"error:"):
            # llama.cpp has a field of its own for errors
            return self._answer.read({"error": content[6:].decode("utf-8", "replace")})
        if content and not self._stray and not content.startswith(_OTHER_LINES):
            self._stray = content[:ERROR_TEXT_CHARACTERS_MAX]
        return ()

    def _data(self, content: bytes) -> Sequence[ModelDelta]:
        if content == b"[DONE]":
            self.is_over = True
            return self._line(b"")
        if not content:
            return ()
        try:
            if not self._event:
                return self._answer.read(json_object(content))
        except ModelUnavailable as error:
            if not isinstance(error.__cause__, ValueError):
                raise
        self._event.append(content)
        self._unread_bytes += len(content)
        return ()


def join_deltas(deltas: Iterable[ModelDelta]) -> Iterator[ModelDelta]:
    """Joins neighbours that continue the same text, because each delta costs as much as many characters. If `deltas`
    raises a ModelError, yields what came before it first.

    The parts of a call stay apart, because some servers repeat its arguments from their start."""
    joined: ModelDelta | None = None
    try:
        for delta in deltas:
            match joined, delta:
                case TextDelta(), TextDelta(replaces_earlier=False):
                    joined = TextDelta(text=joined.text + delta.text, replaces_earlier=joined.replaces_earlier)
                case ThinkingDelta(), ThinkingDelta():
                    joined = ThinkingDelta(text=joined.text + delta.text)
                case _:
                    if joined is not None:
                        yield joined
                    joined = delta
    except ModelError:
        if joined is not None:
            yield joined
        raise
    if joined is not None:
        yield joined


def json_object(content: bytes) -> dict[str, object]:
    """Parses a JSON object. Raises ModelUnavailable if the content is anything else."""
    try:
        try:
            body = cast(object, jiter.from_json(content, cache_mode="keys"))
        except ValueError:
            # half a surrogate pair, whose other half may follow in the next chunk, bytes that are no UTF-8, or control
            # characters in strings
            body = cast(object, json.loads(content.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(error_mapping.UNREADABLE_RESPONSE, detail=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ModelUnavailable(error_mapping.UNREADABLE_RESPONSE, detail="not a JSON object")
    return cast(dict[str, object], body)
