"""Keeps a model's reasoning in the form in which its provider wants it back in later requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from core.domain.messages import REASONING_KEY, JsonObject
from core.ports import ReasoningSnapshot

TEXT_FIELDS = ("reasoning_content", "reasoning")
"""Fields whose text arrives in pieces: DeepSeek, Qwen, GLM and Kimi use the first, vLLM and Groq the second."""
LIST_FIELDS = ("reasoning_details", "thinking_blocks")
"""Fields with blocks, some signed or encrypted: the first is OpenRouter's, the second is litellm's for Claude."""
_CALL_FIELDS = ("extra_content", "provider_specific_fields")
"""Fields of tool calls in which Gemini's signatures arrive, directly and through litellm."""
_PIECES = ("text", "summary", "thinking")
_MERGED_TYPES = frozenset({"reasoning.text", "reasoning.summary", "thinking"})
EMPTY_REASONING = " "
"""Stands for reasoning that was not kept. DeepSeek and Kimi reject an empty text."""


@dataclass(frozen=True, slots=True)
class ReasoningOrigin:
    """The service and the model that wrote a piece of reasoning. Only they can use it again."""

    provider: str
    model: str


def provider_of(base_url: str) -> str:
    """Returns the name of the service at a base URL: its host and path, without credentials."""
    place = base_url.partition("://")[2].partition("?")[0].rstrip("/")
    host, slash, path = place.partition("/")
    return f"{host.rpartition('@')[2]}{slash}{path}"


@dataclass(slots=True)
class _Block:
    """A block of reasoning whose texts arrive in pieces."""

    fields: JsonObject
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def continues_with(self, one: Mapping[str, object]) -> bool:
        """Returns whether `one` is the next piece of this block. A signature ends a block."""
        if one.get("type") not in _MERGED_TYPES or self.fields.get("signature"):
            return False
        return all(
            one.get(key) is None or self.fields.get(key) in (None, one[key])
            for key in ("type", "index", "id")
        )

    def add(self, one: Mapping[str, object]) -> None:
        for key, value in one.items():
            if key in _PIECES and isinstance(value, str):
                self.pieces.setdefault(key, []).append(value)
                self.fields.setdefault(key, "")
            elif value is not None:
                self.fields[key] = cast(str, value)

    def whole(self) -> JsonObject:
        return {**self.fields, **{key: whole_text(parts) for key, parts in self.pieces.items()}}


class ReasoningCollector:
    """Collects the reasoning of one streamed answer of an OpenAI-compatible endpoint."""

    __slots__ = ("_blocks", "_calls", "_has_news", "_origin", "_texts")

    def __init__(self, origin: ReasoningOrigin) -> None:
        self._origin = origin
        self._texts: dict[str, list[str]] = {}
        self._blocks: dict[str, list[_Block]] = {}
        self._calls: dict[int, JsonObject] = {}
        self._has_news = False

    def read(self, said: Mapping[str, object]) -> None:
        """Reads the reasoning in a delta or a whole message."""
        for key in TEXT_FIELDS:
            if isinstance(text := said.get(key), str) and text:
                self._texts.setdefault(key, []).append(text)
                self._has_news = True
        for key in LIST_FIELDS:
            for one in _objects(said.get(key)):
                self._add_block(self._blocks.setdefault(key, []), one)

    def read_call(self, position: int, call: Mapping[str, object]) -> None:
        """Reads the signature of a tool call, if it has one. `position` counts the calls of the answer from 0."""
        for key in _CALL_FIELDS:
            if isinstance(extra := call.get(key), dict) and extra:
                known = cast(JsonObject, self._calls.setdefault(position, {}).setdefault(key, {}))
                known.update(cast(JsonObject, extra))
                self._has_news = True

    def news(self) -> tuple[ReasoningSnapshot, ...]:
        """Returns the reasoning so far, if it has changed since the last call."""
        if not self._has_news:
            return ()
        self._has_news = False
        return (snapshot(self._origin, self._fields()),)

    def _fields(self) -> JsonObject:
        """Returns only the richest form, because the others repeat its text."""
        fields: JsonObject = {}
        if key := next((key for key in LIST_FIELDS if self._blocks.get(key)), None):
            fields[key] = [block.whole() for block in self._blocks[key]]
        elif key := next((key for key in TEXT_FIELDS if key in self._texts), None):
            fields[key] = whole_text(self._texts[key])
        if self._calls:
            last = max(self._calls)
            fields["tool_calls"] = [self._calls.get(at, {}) for at in range(last + 1)]
        return fields

    def _add_block(self, blocks: list[_Block], one: Mapping[str, object]) -> None:
        if not blocks or not blocks[-1].continues_with(one):
            blocks.append(_Block({}))
        blocks[-1].add(one)
        self._has_news = True


def snapshot(origin: ReasoningOrigin, fields: JsonObject) -> ReasoningSnapshot:
    content: JsonObject = {"provider": origin.provider, "model": origin.model, "fields": fields}
    return ReasoningSnapshot(content=content)


def kept_fields(message: JsonObject, origin: ReasoningOrigin) -> JsonObject:
    """Returns the reasoning fields of an assistant message, or an empty object if they are of another origin."""
    state = message.get(REASONING_KEY)
    if not isinstance(state, dict) or not isinstance(fields := state.get("fields"), dict):
        return {}
    is_own = state.get("provider") == origin.provider and state.get("model") == origin.model
    return fields if is_own else {}


def wire_message(
    message: JsonObject,
    origin: ReasoningOrigin,
    *,
    refused: frozenset[str] = frozenset(),
    needs_reasoning: bool = False,
) -> JsonObject:
    """Returns a message as an OpenAI-compatible endpoint takes it.

    Adds the reasoning that `origin` itself has written, except the fields that it has `refused`, and removes an empty
    `tool_calls`, which providers reject. With `needs_reasoning`, every assistant message gets a `reasoning_content`."""
    if message.get("role") != "assistant":
        return message
    dropped = {REASONING_KEY} if message.get("tool_calls") else {REASONING_KEY, "tool_calls"}
    wire: JsonObject = {key: value for key, value in message.items() if key not in dropped}
    fields = kept_fields(message, origin)
    wire |= {key: one for key, one in fields.items() if key not in (*refused, "tool_calls")}
    calls, extras = wire.get("tool_calls"), fields.get("tool_calls")
    if isinstance(calls, list) and isinstance(extras, list):
        wire["tool_calls"] = [
            _with_fields(call, extras[at]) if at < len(extras) else call
            for at, call in enumerate(calls)
        ]
    if needs_reasoning and not wire.get("reasoning_content"):
        wire["reasoning_content"] = wire.get("reasoning") or EMPTY_REASONING
    return wire


def _with_fields(call: JsonValue, extra: JsonValue) -> JsonValue:
    return {**call, **extra} if isinstance(call, dict) and isinstance(extra, dict) else call


def _objects(value: object) -> Iterable[Mapping[str, object]]:
    for one in cast(list[object], value) if isinstance(value, list) else ():
        if isinstance(one, dict):
            yield cast(Mapping[str, object], one)


def whole_text(pieces: Iterable[str]) -> str:
    """Joins the pieces of a text. Surrogates that were split across pieces become one character."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
