"""Truncates messages so that a conversation fits the model's limit: tool results first, then assistant, then user."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from pydantic import JsonValue

from core.context.role_alternation import request_starts
from core.context.tokens import count_message, count_tools, message_tokens
from core.domain.errors import ContextOverflow
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message, MessageType
from core.ports import ModelRequest

EXPAND_TOOL = "expand_message"
TRIES_MAX = 5
ARGUMENTS_MAX = 40
_NOTE_EXCESS_TOKENS = 25
"""How many more tokens a truncation note has than ordinary text of the same length, because it contains an id."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Cut:
    """How a message is truncated: to about `tokens` tokens. The beginning and the end of its texts are kept.

    A truncated message loses the model's reasoning, unless it belongs to the turns since the newest message that begins
    new work, because providers demand the reasoning of these."""

    tokens: int
    keeps_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class TruncatedMessage:
    """A truncated message. `tokens` may exceed the target size if only a small part of the message is text."""

    cut: Cut
    content: JsonObject
    tokens: int


def truncate_message(message: Message, cut: Cut) -> TruncatedMessage:
    """Returns the truncated message. Equal arguments give equal results, so that the provider's cache stays valid."""
    content = dict(message.content)
    if not cut.keeps_reasoning:
        content.pop(REASONING_KEY, None)
    texts = list[str]()
    _map_texts(content, lambda text: texts.append(text) or text)
    texts = [*filter(None, texts)]
    before = max(1, message_tokens(message))
    characters = sum(map(len, texts))
    aim, best = float(cut.tokens), TruncatedMessage(cut, message.content, before)
    for number in range(TRIES_MAX):
        cap = _cap(texts, int(characters * aim / before))
        if number == 0:
            # subtracts the tokens of the truncation notes, so that a second try is rarely needed
            aim -= _NOTE_EXCESS_TOKENS * sum(len(text) > cap for text in texts)
            cap = _cap(texts, int(characters * aim / before))
        short = _map_texts(content, _Cutter(message.message_id, cap))
        best = TruncatedMessage(cut, short, count_message(short))
        if best.tokens <= cut.tokens or aim <= 0:
            break
        aim -= (best.tokens - cut.tokens) * 1.3 + 4
    return best


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Truncates texts to `characters_max` characters, including the note that says how much is left out."""

    message_id: str
    characters_max: int

    def __call__(self, text: str) -> str:
        left_out = len(text) - self.characters_max
        note = self._note(left_out)
        if left_out <= 0 or len(note) >= len(text):
            return text
        kept = max(0, self.characters_max - len(note))
        head = kept * 2 // 3
        tail = kept - head
        return f"{text[:head]}{self._note(len(text) - kept)}{text[len(text) - tail :]}"

    def _note(self, left_out: int) -> str:
        where = f'; {EXPAND_TOOL} with message_id "{self.message_id}" shows the whole message'
        return f"\n[{left_out} characters are left out here{where if self.message_id else ''}]\n"


def _cap(texts: list[str], room: int) -> int:
    """Returns the maximum length of each text, so that all texts together fit into `room` characters."""
    left, count = room, len(texts)
    for text in sorted(texts, key=len):
        if len(text) * count > left:
            return max(0, left // count)
        left -= len(text)
        count -= 1
    return max(map(len, texts), default=0)


def _map_texts(content: JsonObject, change: Callable[[str], str]) -> JsonObject:
    """Returns the content with `change` applied to every text that may be truncated: also inside the JSON of a tool
    result and of the arguments of calls. Roles, names and ids are kept."""
    content = dict(content)
    text, calls = content.get("content"), content.get("tool_calls")
    envelope = _object(text) if isinstance(text, str) and text.startswith('{"tool_execution"') else None
    if envelope is not None:
        execution = envelope.get("tool_execution")
        if isinstance(execution, dict):
            parts: JsonObject = {
                key: _mapped_values(value, change)
                if key in ("arguments", "result") and isinstance(value, dict)
                else value
                for key, value in execution.items()
            }
            content["content"] = _encode({"tool_execution": parts})
        else:
            content["content"] = _encode(_mapped_values(envelope, change))
    elif isinstance(text, str):
        content["content"] = change(text)
    elif isinstance(text, list):
        content["content"] = [
            {**part, "text": change(words)}
            if isinstance(part, dict) and isinstance(words := part.get("text"), str)
            else part
            for part in text
        ]
    if isinstance(calls, list):
        content["tool_calls"] = [_mapped_call(call, change) for call in calls]
    return content


def _object(text: JsonValue) -> JsonObject | None:
    try:
        value: JsonValue = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _mapped_call(call: JsonValue, change: Callable[[str], str]) -> JsonValue:
    if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
        arguments = _object(function.get("arguments"))
        if arguments is not None:
            return {**call, "function": {**function, "arguments": _encode(_mapped_values(arguments, change))}}
    return call


def _mapped_values(values: JsonObject, change: Callable[[str], str]) -> JsonObject:
    """Returns the values with `change` applied. Lists and objects become JSON strings if they are truncated."""
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


FIRST_LIMIT_TOKENS = 4096
LAST_LIMIT_TOKENS = 256
TARGET_PERCENT = 90
"""If the newest messages must be truncated, too, all messages come to this percentage of the limit."""
LOW_PERCENT = 35
"""Older messages are truncated until all messages come to this percentage of the limit, so that the beginning of the
request then stays the same for many turns."""
NEWEST_PERCENT = 25
"""The newest messages, up to this percentage of the limit, are truncated only if nothing else is enough."""
CUT_TOKENS_MIN = 64
"""A truncation must save at least this many tokens, because the note about it also uses tokens."""
_ORDER: tuple[MessageType, ...] = ("tool", "assistant", "user")
"""Messages of these types are truncated, in this order and each from the oldest on."""
_REPLANS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMessages:
    """A conversation after truncation, with its token count.

    `shown` maps message ids to all truncated messages, `made` maps message ids to new cuts. `is_over` is True if the
    conversation does not fit even after all possible truncation."""

    contents: tuple[JsonObject, ...]
    tokens: int
    shown: Mapping[str, TruncatedMessage]
    made: Mapping[str, Cut] = field(default_factory=dict[str, Cut])
    is_over: bool = False


def fit_messages(messages: Sequence[Message], room: int, shown: Mapping[str, TruncatedMessage]) -> FittedMessages:
    """Returns the messages, truncated to at most `room` tokens if possible.

    `shown` contains the messages that were truncated earlier; they stay truncated. No message is removed, so that tool
    calls keep their results."""
    sizes = [known.tokens if (known := shown.get(one.message_id)) else message_tokens(one) for one in messages]
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
    return FittedMessages(contents=_contents(messages, now), tokens=tokens, shown=now, made=made, is_over=tokens > room)


def fit_request(request: ModelRequest, tokens_max: int) -> ModelRequest:
    """Returns the request with its longest messages truncated, so that it has at most `room` tokens with its tools.

    The system prompt is never truncated. Raises ContextOverflow if the request cannot fit."""
    messages, limit = request.messages, FIRST_LIMIT_TOKENS
    while (tokens := count_tools(request.tools) + sum(map(count_message, messages))) > tokens_max:
        if limit < LAST_LIMIT_TOKENS:
            detail = f"about {tokens} tokens, and the model has room for {tokens_max}"
            raise ContextOverflow(f"The request is too long for {request.model}.", detail=detail)
        shortened = list[JsonObject]()
        for content in messages:
            if content.get("role") != "system" and count_message(content) > limit:
                # the model sees no message ids, so this note cannot tell it which message to expand
                message = Message(type="tool", content=content, is_llm_message=True, thread_id="", message_id="")
                content = truncate_message(message, Cut(limit, keeps_reasoning=True)).content
            shortened.append(content)
        messages = tuple(shortened)
        limit //= 2
    return replace(request, messages=messages)


def _contents(messages: Sequence[Message], shown: Mapping[str, TruncatedMessage]) -> tuple[JsonObject, ...]:
    if not shown:
        return tuple(one.content for one in messages)
    return tuple(short.content if (short := shown.get(one.message_id)) else one.content for one in messages)


def _planned(messages: Sequence[Message], sizes: Sequence[int], room: int, spent: set[int]) -> dict[int, Cut]:
    """Returns the cuts by message index, planned with token counts only, so that each message is truncated once."""
    sizes = list(sizes)
    starts = (index for index, is_start in enumerate(request_starts(messages)) if is_start)
    newest_start = max(starts, default=-1)
    newer = list(accumulate(reversed(sizes), initial=0))[-2::-1]
    older = [index for index, tokens in enumerate(newer) if tokens > room * NEWEST_PERCENT // 100]
    everything = [index for index, one in enumerate(messages) if one.type in _ORDER]
    order = {kind: place for place, kind in enumerate(_ORDER)}
    plan: dict[int, Cut] = {}

    def truncate(indexes: Sequence[int], aim: int) -> None:
        excess, limit = sum(sizes) - aim, FIRST_LIMIT_TOKENS
        while excess > 0 and limit >= LAST_LIMIT_TOKENS:
            for index in sorted(indexes, key=lambda index: order[messages[index].type]):
                if index in spent or sizes[index] < limit + CUT_TOKENS_MIN:
                    continue
                kept = max(limit, sizes[index] - excess - CUT_TOKENS_MIN)
                plan[index] = Cut(kept, keeps_reasoning=index > newest_start)
                excess -= sizes[index] - kept
                sizes[index] = kept
                if excess <= 0:
                    return
            limit //= 2

    results = [index for index in older if messages[index].type == "tool"]
    truncate(results, room * LOW_PERCENT // 100)
    if sum(sizes) > room:
        truncate(everything, room * TARGET_PERCENT // 100)
    return plan
