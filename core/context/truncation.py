"""Bringing a conversation under the model's limit: which messages are cut, in which order, and how far."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from core.context.tokens import count_message, message_tokens
from core.domain.messages import JsonObject, Message, MessageType

EXPAND_TOOL = "expand_message"
TRIES_MAX = 5
ARGUMENTS_MAX = 40
_NOTE_EXCESS_TOKENS = 25
"""What a note costs more than as many characters of common text: it holds an id."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Cut:
    """How a message was shortened: to about so many tokens, with or without its end."""

    tokens: int
    keeps_tail: bool


@dataclass(frozen=True, slots=True)
class TruncatedMessage:
    """A message as it is sent after the cut. `tokens` may be more than wanted where too little of it is text."""

    cut: Cut
    content: JsonObject
    tokens: int


def truncate_message(message: Message, cut: Cut) -> TruncatedMessage:
    """The same for the same message and cut, so that what a provider has cached stays true."""
    body = _opened(message.content)
    texts = [text for text in _texts(body) if text]
    before = max(1, message_tokens(message))
    characters = sum(map(len, texts))
    aim, best = float(cut.tokens), TruncatedMessage(cut, message.content, before)
    for number in range(TRIES_MAX):
        cap = _cap(texts, int(characters * aim / before))
        if number == 0:
            # a first try that counts the notes in is seldom followed by a second
            aim -= _NOTE_EXCESS_TOKENS * sum(len(text) > cap for text in texts)
            cap = _cap(texts, int(characters * aim / before))
        content = _closed(_mapped(body, _Cutter(message.message_id, cut, cap)))
        best = TruncatedMessage(cut, content, count_message(content))
        if best.tokens <= cut.tokens or aim <= 0:
            break
        aim -= (best.tokens - cut.tokens) * 1.3 + 4
    return best


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts a text that is longer than the cap, which holds for what stays of it with the note."""

    message_id: str
    cut: Cut
    characters_max: int

    def __call__(self, text: str) -> str:
        left_out = len(text) - self.characters_max
        note = self._note(left_out)
        if left_out <= 0 or len(note) >= len(text):
            return text
        kept = max(0, self.characters_max - len(note))
        if not self.cut.keeps_tail:
            return f"{text[:kept]}{self._note(len(text) - kept)}"
        head = kept * 2 // 3
        tail = kept - head
        return f"{text[:head]}{self._note(len(text) - kept)}{text[len(text) - tail :]}"

    def _note(self, left_out: int) -> str:
        where = f'{EXPAND_TOOL} with message_id "{self.message_id}" shows the whole message'
        if not self.cut.keeps_tail:
            return f"\n[The last {left_out} characters are left out; {where}]"
        return (
            f"\n[{left_out} characters are left out here; {where}. Say again in your own words what you need to"
            " remember of it.]\n"
        )


def _cap(texts: list[str], room: int) -> int:
    """The length that no text may exceed, so that all together fill the room: the longest pay first."""
    left, count = room, len(texts)
    for text in sorted(texts, key=len):
        if len(text) * count > left:
            return max(0, left // count)
        left -= len(text)
        count -= 1
    return max(0, left)


@dataclass(frozen=True, slots=True)
class _Body:
    """A message with its JSON read: the envelope of a tool's result, and the arguments of calls."""

    content: JsonObject
    envelope: JsonObject | None = None
    arguments: tuple[JsonObject | None, ...] = ()


def _opened(content: JsonObject) -> _Body:
    body = _Body(content=content)
    text = content.get("content")
    if isinstance(text, str) and text.startswith('{"tool_execution"'):
        body = replace(body, envelope=_object(text))
    calls = content.get("tool_calls")
    if isinstance(calls, list):
        body = replace(body, arguments=tuple(_object(_arguments_text(call)) for call in calls))
    return body


def _object(text: str) -> JsonObject | None:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _arguments_text(call: JsonValue) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    text = function.get("arguments") if isinstance(function, dict) else None
    return text if isinstance(text, str) else ""


def _texts(body: _Body) -> list[str]:
    found: list[str] = []

    def look(text: str) -> str:
        found.append(text)
        return text

    _mapped(body, look)
    return found


def _mapped(body: _Body, change: Callable[[str], str]) -> _Body:
    """The body with every text changed that may be: never a role, a name or an id."""
    content = dict(body.content)
    envelope = body.envelope
    if envelope is not None:
        envelope = _mapped_envelope(envelope, change)
    else:
        content["content"] = _mapped_parts(content.get("content"), change)
    arguments = tuple(one if one is None else _mapped_values(one, change) for one in body.arguments)
    return _Body(content=content, envelope=envelope, arguments=arguments)


def _mapped_parts(content: JsonValue, change: Callable[[str], str]) -> JsonValue:
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return [
        {**part, "text": change(text)}
        if isinstance(part, dict) and isinstance(text := part.get("text"), str)
        else part
        for part in content
    ]


def _mapped_envelope(envelope: JsonObject, change: Callable[[str], str]) -> JsonObject:
    execution = envelope.get("tool_execution")
    if not isinstance(execution, dict):
        return _mapped_values(envelope, change)
    execution = dict(execution)
    for key in ("arguments", "result"):
        value = execution.get(key)
        if isinstance(value, dict):
            execution[key] = _mapped_values(value, change)
    return {"tool_execution": execution}


def _mapped_values(values: JsonObject, change: Callable[[str], str]) -> JsonObject:
    """Values that are no text are cut as the JSON text of themselves, and stay what they are where nothing is cut."""
    if len(values) > ARGUMENTS_MAX:
        text = _encode(values)
        cut = change(text)
        return values if cut == text else {"cut": cut}
    changed: JsonObject = {}
    for key, value in values.items():
        if isinstance(value, dict | list):
            text = _encode(value)
            cut = change(text)
            changed[key] = value if cut == text else cut
        else:
            changed[key] = change(value) if isinstance(value, str) else value
    return changed


def _closed(body: _Body) -> JsonObject:
    content = dict(body.content)
    if body.envelope is not None:
        content["content"] = _encode(body.envelope)
    calls = content.get("tool_calls")
    if isinstance(calls, list):
        content["tool_calls"] = [
            _with_arguments(call, arguments)
            for call, arguments in zip(calls, body.arguments, strict=True)
        ]
    return content


def _with_arguments(call: JsonValue, arguments: JsonObject | None) -> JsonValue:
    function = call.get("function") if isinstance(call, dict) else None
    if arguments is None or not isinstance(call, dict) or not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _encode(arguments)}}


FIRST_LIMIT_TOKENS = 4096
LAST_LIMIT_TOKENS = 256
TARGET_PERCENT = 90
"""Cutting goes a little under the limit, so that the next messages fit without another cut."""
CUT_TOKENS_MIN = 64
"""A cut that wins less would cost more in its note than it is worth."""
_ORDER: tuple[MessageType, ...] = ("tool", "assistant", "user")
_REPLANS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMessages:
    """What is sent. `shown` are the messages that are sent shortened, by id, those of before and the new ones alike.

    `made` are the cuts that are new. `is_over`: it does not fit, even with everything cut that may be.
    """

    contents: tuple[JsonObject, ...]
    tokens: int
    shown: Mapping[str, TruncatedMessage]
    made: Mapping[str, Cut] = field(default_factory=dict[str, Cut])
    is_over: bool = False


def fit_messages(
    messages: Sequence[Message], room: int, shown: Mapping[str, TruncatedMessage]
) -> FittedMessages:
    """The messages in at most `room` tokens. What was cut before stays cut; no message goes, so pairs stay together."""
    sizes = [
        known.tokens if (known := shown.get(one.message_id)) else message_tokens(one)
        for one in messages
    ]
    tokens = sum(sizes)
    if tokens <= room:
        return FittedMessages(contents=_contents(messages, shown), tokens=tokens, shown=shown)
    now, made, spent = dict(shown), dict[str, Cut](), set[int]()
    for _ in range(_REPLANS_MAX):
        for index, cut in _planned(messages, sizes, room, spent).items():
            message = messages[index]
            short = truncate_message(message, cut)
            if short.tokens > cut.tokens:
                spent.add(index)
            if short.tokens < sizes[index]:
                now[message.message_id], made[message.message_id] = short, cut
                sizes[index] = short.tokens
        tokens = sum(sizes)
        if tokens <= room:
            break
    return FittedMessages(
        contents=_contents(messages, now),
        tokens=tokens,
        shown=now,
        made=made,
        is_over=tokens > room,
    )


def _contents(
    messages: Sequence[Message], shown: Mapping[str, TruncatedMessage]
) -> tuple[JsonObject, ...]:
    if not shown:
        return tuple(one.content for one in messages)
    return tuple(
        short.content if (short := shown.get(one.message_id)) else one.content for one in messages
    )


def _planned(
    messages: Sequence[Message], sizes: Sequence[int], room: int, spent: set[int]
) -> dict[int, Cut]:
    """Index to cut, found by counting alone: every message is then cut once, to its last length."""
    sizes = list(sizes)
    excess = sum(sizes) - room * TARGET_PERCENT // 100
    plan: dict[int, Cut] = {}
    limit = FIRST_LIMIT_TOKENS
    while limit >= LAST_LIMIT_TOKENS:
        for index, keeps_tail in _steps(messages):
            if index in spent or sizes[index] < limit + CUT_TOKENS_MIN:
                continue
            kept = max(limit, sizes[index] - excess - CUT_TOKENS_MIN)
            plan[index] = Cut(tokens=kept, keeps_tail=keeps_tail)
            excess -= sizes[index] - kept
            sizes[index] = kept
            if excess <= 0:
                return plan
        limit //= 2
    return plan


def _steps(messages: Sequence[Message]) -> Iterator[tuple[int, bool]]:
    """The messages of one round in order: of each kind the newest first, which keeps its end, then the oldest first."""
    for kind in _ORDER:
        indexes = [index for index, one in enumerate(messages) if one.type == kind]
        if indexes:
            yield indexes[-1], True
            yield from ((index, False) for index in indexes[:-1])
