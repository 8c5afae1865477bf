"""Keeps a model's reasoning, and everything else that only its provider understands, for later requests to the same
model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import cast

from pydantic import JsonValue

from core.domain.json import JsonObject, json_fields, json_objects
from core.domain.messages import REASONING_KEY
from core.ports import ModelRequest, ReasoningSnapshot

TEXT_FIELDS = ("reasoning_content", "reasoning")
"""Fields whose text arrives in pieces. DeepSeek, Qwen, GLM and Kimi use the first field, vLLM and Groq the second."""
LIST_FIELDS = ("reasoning_details", "thinking_blocks")
"""Fields with blocks, some signed or encrypted: the first is OpenRouter's, the second is litellm's for Claude."""
NEEDED_FIELDS = frozenset((*TEXT_FIELDS, *LIST_FIELDS, "extra_content", "output"))
"""Kept fields without which providers refuse a request."""
_PLAIN_FIELDS = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))
_OWN_FIELDS = frozenset((*_PLAIN_FIELDS, *TEXT_FIELDS, *LIST_FIELDS))
_ANSWER_FIELDS = frozenset(("annotations", "audio", "citations", "images", "executed_tools"))
"""Fields of answers that providers do not accept in requests."""
_CALL_FIELDS = frozenset(("index", "id", "type", "function", "name", "arguments"))
_LIBRARY_FIELD = "provider_specific_fields"
_LIBRARY_STATE = ("thought_signatures", "compaction_blocks", "server_side_tool_invocations")
"""What litellm keeps of a message for Gemini and Claude, and needs again."""
KEPT_FIELDS_MAX = 32
KEPT_CHARACTERS_MAX = 4 * 1024 * 1024
"""If an answer has more reasoning and unknown fields than this, none of them is kept, because a part is useless."""
_THINKING_OPTIONS = frozenset(("thinking", "reasoning", "reasoning_effort"))
_PIECES = ("text", "summary", "thinking")
_MERGED_TYPES = frozenset({"reasoning.text", "reasoning.summary", "thinking"})
REASONING_FIELD, SIGNATURE_FIELD = "reasoning_content", "thought_signature"
STAND_INS = {REASONING_FIELD: " ", SIGNATURE_FIELD: "skip_thought_signature_validator"}
"""What stands for a field that a provider demands of messages which its model did not write. DeepSeek and Kimi demand
reasoning in each assistant message, and reject an empty text. Gemini 3 demands a signature in the first call of each
message; Google documents this text for calls of other models."""


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
        return all(one.get(key) is None or self.fields.get(key) in (None, one[key]) for key in ("type", "index", "id"))

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
    """Collects the reasoning and the unknown fields of one streamed answer in the format of OpenAI's chat API.

    With `is_library`, the answer comes from litellm. Of its unknown fields, only those of calls are kept, and those of
    messages that litellm needs again, because litellm forwards everything to providers that may refuse it."""

    __slots__ = (
        "_blocks", "_calls", "_calls_started", "_characters", "_has_news",
        "_is_library", "_origin", "_others", "_started", "_texts",
    )  # fmt: skip

    def __init__(self, origin: ReasoningOrigin, *, is_library: bool = False) -> None:
        self._is_library = is_library
        self._others: JsonObject = {}
        self._characters = 0
        self._origin = origin
        self._texts: dict[str, list[str]] = {}
        self._blocks: dict[str, list[_Block]] = {}
        self._calls: dict[int, JsonObject] = {}
        self._calls_started = 0
        self._started: dict[int, tuple[int, object]] = {}
        self._has_news = False

    def read(self, said: Mapping[str, object]) -> None:
        """Reads a delta or a whole message, except its calls."""
        if not said.keys() <= _PLAIN_FIELDS:
            for key in TEXT_FIELDS:
                if isinstance(text := said.get(key), str) and text and self._has_room(text):
                    self._texts.setdefault(key, []).append(text)
            for key in LIST_FIELDS:
                for one in json_objects(said.get(key)):
                    if self._has_room(one):
                        blocks = self._blocks.setdefault(key, [])
                        if not blocks or not blocks[-1].continues_with(one):
                            blocks.append(_Block({}))
                        blocks[-1].add(one)
            if self._is_library:
                state = json_fields(said.get(_LIBRARY_FIELD))
                kept = {key: state[key] for key in _LIBRARY_STATE if key in state}
                self._keep({_LIBRARY_FIELD: kept}, self._others)
            elif others := said.keys() - _OWN_FIELDS - _ANSWER_FIELDS:
                self._keep({key: said[key] for key in others}, self._others)

    def read_call(self, index: int, call: Mapping[str, object]) -> None:
        """Reads the unknown fields of a part of a tool call. `index` is the call's index according to the service.
        Calls are numbered in the order in which they started. Some services send the same index for every call, so a
        new call is then recognized by its id."""
        place, known_id = self._started.get(index, (self._calls_started, None))
        call_id = call.get("id") or known_id
        if known_id and call_id != known_id:
            place = self._calls_started
        self._started[index] = place, call_id
        self._calls_started = max(self._calls_started, place + 1)
        if others := call.keys() - _CALL_FIELDS:
            self._keep({key: call[key] for key in others}, self._calls.setdefault(place, {}))

    def _keep(self, fields: Mapping[str, object], kept: JsonObject) -> None:
        for key, value in fields.items():
            if value in (None, "", [], {}) or (key not in kept and len(kept) == KEPT_FIELDS_MAX):
                continue
            if not self._has_room(value):
                return
            new, old = cast(JsonValue, value), kept.get(key)
            if isinstance(old, dict) and isinstance(new, dict):
                new = {**old, **new}
            elif isinstance(old, str) and isinstance(new, str) and new != old:
                new = old + new
            kept[key] = new

    def _has_room(self, value: object) -> bool:
        """Counts the size of a value. If the total is too large, drops everything."""
        self._has_news |= self._characters <= KEPT_CHARACTERS_MAX
        self._characters += len(value) if isinstance(value, str) else len(repr(value))
        if self._characters <= KEPT_CHARACTERS_MAX:
            return True
        for kept in (self._texts, self._blocks, self._calls, self._others):
            kept.clear()
        return False

    def take_snapshot(self) -> tuple[ReasoningSnapshot, ...]:
        """Returns the reasoning so far, if it has changed since the last call. Of several forms of one text, returns
        the richest."""
        if not self._has_news:
            return ()
        self._has_news = False
        fields: JsonObject = dict(self._others)
        if key := next((key for key in LIST_FIELDS if self._blocks.get(key)), None):
            fields[key] = [block.whole() for block in self._blocks[key]]
        elif key := next((key for key in TEXT_FIELDS if key in self._texts), None):
            fields[key] = whole_text(self._texts[key])
        if self._calls:
            last = max(self._calls)
            fields["tool_calls"] = [self._calls.get(at, {}) for at in range(last + 1)]
        return (build_snapshot(self._origin, fields),)


def build_snapshot(origin: ReasoningOrigin, fields: JsonObject) -> ReasoningSnapshot:
    content: JsonObject = {"provider": origin.provider, "model": origin.model, "fields": fields}
    return ReasoningSnapshot(content=content)


def find_kept_fields(message: JsonObject, origin: ReasoningOrigin) -> JsonObject:
    """Returns the reasoning fields of an assistant message, or an empty object if they are of another origin."""
    state = message.get(REASONING_KEY)
    if not isinstance(state, dict) or not isinstance(fields := state.get("fields"), dict):
        return {}
    is_own = state.get("provider") == origin.provider and state.get("model") == origin.model
    return fields if is_own else {}


def build_wire_message(
    message: JsonObject,
    origin: ReasoningOrigin,
    *,
    refused: frozenset[str] = frozenset(),
    demanded: frozenset[str] = frozenset(),
) -> JsonObject:
    """Returns a message as an OpenAI-compatible endpoint takes it.

    Adds the reasoning that `origin` itself has written, except the fields that it has `refused`, and removes an empty
    `tool_calls`, which providers reject. A field of STAND_INS that is `demanded` and missing gets its stand-in."""
    if message.get("role") != "assistant":
        return message
    dropped = {REASONING_KEY} if message.get("tool_calls") else {REASONING_KEY, "tool_calls"}
    wire: JsonObject = {key: value for key, value in message.items() if key not in dropped}
    fields = find_kept_fields(message, origin)
    wire |= {key: one for key, one in fields.items() if key not in (*refused, "tool_calls")}
    calls, extras = wire.get("tool_calls"), fields.get("tool_calls")
    if isinstance(calls, list) and isinstance(extras, list):
        wire["tool_calls"] = [
            {**call, **{key: one for key, one in extra.items() if key not in refused}}
            if isinstance(call, dict) and isinstance(extra, dict)
            else call
            for call, extra in zip(calls, chain(extras, repeat(None)), strict=False)
        ]
    if REASONING_FIELD in demanded and not wire.get(REASONING_FIELD):
        wire[REASONING_FIELD] = wire.get("reasoning") or STAND_INS[REASONING_FIELD]
    calls = wire.get("tool_calls")
    if SIGNATURE_FIELD in demanded and isinstance(calls, list) and isinstance(first := calls[0], dict):
        google = json_fields(json_fields(first.get("extra_content")).get("google"))
        if not google.get(SIGNATURE_FIELD):
            signed: JsonValue = {"google": {SIGNATURE_FIELD: STAND_INS[SIGNATURE_FIELD]}}
            wire["tool_calls"] = [{**first, "extra_content": signed}, *calls[1:]]
    return wire


def without_thinking_after_others(request: ModelRequest) -> ModelRequest:
    """Returns the request without effort and reasoning if the calls whose results it ends with, perhaps of a fallback,
    do not follow reasoning of its model. Claude refuses to think then."""
    written = (one for one in reversed(request.messages) if one.get("role") == "assistant")
    last, options = next(written, dict[str, JsonValue]()), request.options
    state = json_fields(last.get(REASONING_KEY))
    fields = json_fields(state.get("fields")) if state.get("model") == request.model else {}
    if options is None or not last.get("tool_calls") or not fields.keys().isdisjoint(LIST_FIELDS):
        return request
    messages = tuple(
        {key: one[key] for key in one if key != REASONING_KEY} if REASONING_KEY in one else one
        for one in request.messages
    )
    extra = {key: options.extra[key] for key in options.extra if key not in _THINKING_OPTIONS}
    options = options.model_copy(update={"effort": None, "extra": extra})
    return replace(request, messages=messages, options=options)


def kept_names(messages: Iterable[JsonObject], origin: ReasoningOrigin) -> set[str]:
    """Returns the names of the fields that these messages and their calls get for requests to `origin`."""
    names: set[str] = set()
    for message in messages:
        fields = find_kept_fields(message, origin)
        names.update(fields, *json_objects(fields.get("tool_calls")))
    return names - {"tool_calls"}


def whole_text(pieces: Iterable[str]) -> str:
    """Joins the pieces of a text. Surrogates that were split across pieces become one character."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
