"""Which step of a scenario answers a request, by the request alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from core.domain.messages import JsonObject
from core.llm.scripted.scenario import (
    Conversation,
    Expectation,
    Scenario,
    ScriptedCall,
    Step,
    Texts,
)

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class UnexpectedRequest(Exception):
    """The scenario has no answer to a request; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat request as the scenario sees it. `tools` are the names that are offered natively."""

    messages: tuple[Mapping[str, object], ...]
    tools: frozenset[str]

    @property
    def system(self) -> str:
        return "\n".join(message_text(one) for one in self.messages if one.get("role") == "system")

    def offers(self, tool: str) -> bool:
        """Natively, or by its heading or example in the system prompt."""
        return tool in self.tools or (not self.tools and f'<invoke name="{tool}">' in self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStep:
    """The step that answers a request, and the values for its places."""

    conversation: Conversation
    number: int
    step: Step
    values: Mapping[str, str]

    def filled(self, value: JsonValue) -> JsonValue:
        """The value with every place in its texts filled. Raises Unexpected for one that nothing was captured for."""
        if isinstance(value, str):
            return _PLACE.sub(self._filled_place, value)
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if isinstance(value, dict):
            return {key: self.filled(one) for key, one in value.items()}
        return value

    def _filled_place(self, match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in self.values:
            raise UnexpectedRequest(f"{self.title}: nothing was captured for {{{{{name}}}}}")
        return self.values[name]

    @property
    def title(self) -> str:
        return f"{self.conversation.name}, step {self.number + 1}"


def match_step(scenario: Scenario, sent: ChatRequest) -> MatchedStep:
    """The step for the request. Raises Unexpected where there is none, or an expectation of it does not hold."""
    started = [
        (start, conversation)
        for conversation in scenario.conversations
        if (start := _start(conversation, sent)) is not None
    ]
    if not started:
        raise UnexpectedRequest("no conversation of the scenario begins with any of these messages")
    latest = max(start for start, _ in started)
    conversation = next(found for start, found in started if start == latest)
    since = sent.messages[latest:]
    number = sum(message.get("role") == "assistant" for message in since)
    if number >= len(conversation.steps):
        raise UnexpectedRequest(f"{conversation.name} has no step {number + 1}")
    step = conversation.steps[number]
    play = MatchedStep(
        conversation=conversation, number=number, step=step, values=_captured(conversation, since)
    )
    for mismatch in expectation_failures(step.expect, sent):
        raise UnexpectedRequest(f"{play.title}: {mismatch}")
    return play


def expectation_failures(expect: Expectation, sent: ChatRequest) -> Iterator[str]:
    """Everything about the request that is not as expected."""
    last = sent.messages[-1]
    if mismatch := expect.last.mismatch(message_text(last)):
        yield f"the last message is not as expected: {mismatch}"
    if mismatch := expect.system.mismatch(sent.system):
        yield f"the system prompt is not as expected: {mismatch}"
    execution = _newest_execution(sent)
    if expect.tool is not None and execution.get("function_name") != expect.tool:
        yield f"the last result is of {execution.get('function_name')}, not of {expect.tool}"
    result = execution.get("result")
    succeeded = cast(dict[str, object], result).get("success") if isinstance(result, dict) else None
    if expect.success is not None and succeeded is not expect.success:
        yield f"the success of the last result is {succeeded}"
    if len(sent.messages) < expect.messages_min:
        yield f"there are only {len(sent.messages)} messages"
    if expect.messages_max is not None and len(sent.messages) > expect.messages_max:
        yield f"there are {len(sent.messages)} messages"
    yield from (f"{tool} is not offered" for tool in expect.tools if not sent.offers(tool))
    yield from (f"{tool} is offered" for tool in expect.lacks_tools if sent.offers(tool))


def message_text(message: Mapping[str, object]) -> str:
    """The text of a message; of a tool result also its output, decoded."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [
            cast(dict[str, object], part)
            for part in cast(list[object], content)
            if isinstance(part, dict)
        ]
        return "\n".join(str(part.get("text") or "") for part in parts)
    text = content if isinstance(content, str) else ""
    result = tool_execution(message).get("result")
    if isinstance(result, dict):
        values = cast(dict[str, object], result)
        text = "\n".join((text, *(str(values.get(key)) for key in ("output", "error"))))
    return text


def tool_execution(message: Mapping[str, object]) -> dict[str, object]:
    """The envelope of a tool result, or nothing."""
    content = message.get("content")
    if not isinstance(content, str) or not content.startswith('{"tool_execution"'):
        return {}
    try:
        envelope = cast(object, json.loads(content))
    except ValueError:
        return {}
    inner = (
        cast(dict[str, object], envelope).get("tool_execution")
        if isinstance(envelope, dict)
        else None
    )
    return cast(dict[str, object], inner) if isinstance(inner, dict) else {}


def _newest_execution(sent: ChatRequest) -> dict[str, object]:
    for message in reversed(sent.messages):
        if execution := tool_execution(message):
            return execution
    return {}


def _start(conversation: Conversation, sent: ChatRequest) -> int | None:
    when = conversation.when
    if when.system.mismatch(sent.system) or not all(map(sent.offers, when.tools)):
        return None
    for position in range(len(sent.messages) - 1, -1, -1):
        message = sent.messages[position]
        if message.get("role") != "user" or tool_execution(message):
            continue
        if when.user.mismatch(message_text(message)) is None:
            return position
    return None


def _captured(conversation: Conversation, since: Sequence[Mapping[str, object]]) -> dict[str, str]:
    values: dict[str, str] = {}
    heard = [message_text(one) for one in reversed(since) if one.get("role") in ("user", "tool")]
    for name, pattern in conversation.capture.items():
        found = next(filter(None, (re.search(pattern, text) for text in heard)), None)
        if found is not None:
            values[name] = found.group(1) if found.re.groups else found.group()
    return values


def answer_deltas(play: MatchedStep, *, is_native: bool) -> Iterator[JsonObject]:
    """The `delta` objects in order. Raises Unexpected for a place that nothing was captured for."""
    step = play.step
    for piece in _pieces(_filled(play, step.thinking), step.chunk_characters):
        yield {"reasoning_content": piece}
    text = _filled(play, step.text)
    if step.calls and not is_native:
        text = "\n\n".join(part for part in (text, _block(play, step.calls)) if part)
    for piece in _pieces(text, step.chunk_characters):
        yield {"content": piece}
    for piece in _raw(step.raw):
        yield {"content": _filled(play, piece)}
    if is_native:
        for index, call in enumerate(step.calls):
            yield from _call_deltas(play, index, call)


def finish_reason(play: MatchedStep, *, is_native: bool) -> str:
    """The step's own, or the natural one."""
    natural = "tool_calls" if play.step.calls and is_native else "stop"
    return play.step.finish_reason or natural


def whole_message(pieces: list[JsonObject]) -> JsonObject:
    """What the deltas amount to, for a request that is not streamed."""
    message: dict[str, object] = {"role": "assistant", "content": None}
    calls: dict[int, JsonObject] = {}
    for piece in pieces:
        for key in ("content", "reasoning_content"):
            if key in piece:
                message[key] = f"{message.get(key) or ''}{piece[key]}"
        for part in cast(list[JsonObject], piece.get("tool_calls") or []):
            _add_part(calls, part)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return cast(JsonObject, message)


def usage(play: MatchedStep, *, input_characters: int, output_characters: int) -> JsonObject:
    """The step's own, or a guess by the length."""
    told = play.step.usage
    if told is None:
        tokens_in, tokens_out = input_characters // 4 + 1, output_characters // 4 + 1
        return {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
    counted: JsonObject = {
        "prompt_tokens": told.input_tokens,
        "completion_tokens": told.output_tokens,
        "total_tokens": told.input_tokens + told.output_tokens,
        "prompt_tokens_details": {"cached_tokens": told.cached_tokens},
    }
    return counted if told.cost_usd is None else {**counted, "cost": told.cost_usd}


def delta_length(piece: JsonObject) -> int:
    """Characters of the answer that a delta carries."""
    characters = len(str(piece.get("content") or ""))
    for part in cast(list[JsonObject], piece.get("tool_calls") or []):
        characters += len(str(cast(JsonObject, part["function"]).get("arguments") or ""))
    return characters


def _add_part(calls: dict[int, JsonObject], part: JsonObject) -> None:
    index = cast(int, part["index"])
    function = cast(JsonObject, part["function"])
    known = calls.get(index)
    if known is None:
        calls[index] = {"id": part["id"], "type": "function", "function": dict(function)}
        return
    kept = cast(JsonObject, known["function"])
    kept["arguments"] = f"{kept['arguments']}{function['arguments']}"


def _call_deltas(play: MatchedStep, index: int, call: ScriptedCall) -> Iterator[JsonObject]:
    call_id = call.id or f"call_{play.conversation.name}_{play.number}_{index}".replace(" ", "_")
    opening: JsonObject = {"name": call.name, "arguments": ""}
    first: JsonObject = {"index": index, "id": call_id, "type": "function", "function": opening}
    yield {"tool_calls": [first]}
    filled = play.filled(call.arguments)
    arguments = filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)
    for piece in _pieces(arguments, play.step.chunk_characters):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _block(play: MatchedStep, calls: tuple[ScriptedCall, ...]) -> str:
    lines = ["<function_calls>"]
    for call in calls:
        lines.append(f'<invoke name="{call.name}">')
        if isinstance(call.arguments, str):
            lines.append(_filled(play, call.arguments))
        else:
            lines.extend(_parameter(play, *argument) for argument in call.arguments.items())
        lines.append("</invoke>")
    return "\n".join((*lines, "</function_calls>"))


def _parameter(play: MatchedStep, name: str, value: JsonValue) -> str:
    filled = play.filled(value)
    text = filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)
    return f'<parameter name="{name}">{text}</parameter>'


def _filled(play: MatchedStep, text: str) -> str:
    return str(play.filled(text))


def _raw(raw: Texts) -> tuple[str, ...]:
    return (raw,) if isinstance(raw, str) else raw


def _pieces(text: str, characters: int) -> Iterator[str]:
    for start in range(0, len(text), characters):
        yield text[start : start + characters]
