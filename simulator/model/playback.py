"""Selects the scenario step that answers a request, and builds the response. The choice depends only on the request."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from simulator.model.scenario import Conversation, Expectation, JsonObject, Scenario, ScriptedCall, Step

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
RESULT_START = '{"tool_execution"'


Messages = tuple[Mapping[str, object], ...]


class UnexpectedRequest(Exception):
    """Raised if the scenario has no response to a request. The message names the reason."""


_ERROR = re.compile(r"^Error: ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """The parts of a chat request that scenarios match.

    `state` is the program's text about the state of the work, which `messages` do not contain. `tools` holds the names
    of the natively offered tools."""

    messages: Messages
    tools: frozenset[str]
    state: str = ""

    @property
    def system(self) -> str:
        """What the program says beside the conversation: the system prompt and the state of the work."""
        said = [message_text(one) for one in self.messages if one.get("role") == "system"]
        return "\n".join((*said, self.state))

    def offers(self, tool: str) -> bool:
        """Returns whether the request offers the tool, natively or as an example in the system prompt."""
        return tool in self.tools or (not self.tools and f'<invoke name="{tool}">' in self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStep:
    """The step that answers a request, and the captured values for its `{{name}}` placeholders."""

    conversation: Conversation
    number: int
    step: Step
    values: Mapping[str, str]

    def filled(self, value: JsonValue) -> JsonValue:
        """Returns the value with all placeholders in its texts replaced.

        Raises UnexpectedRequest if a placeholder has no captured value."""
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
    """Returns the step that answers the request.

    Raises UnexpectedRequest if no step matches, or if the request does not meet the step's expectations."""
    started = [
        (start, conversation)
        for conversation in scenario.conversations
        if (start := _start(conversation, sent)) is not None
    ]
    if not started:
        raise UnexpectedRequest("no conversation of the scenario begins with any of these messages")
    latest = max(start for start, _ in started)
    conversation = next(found for start, found in started if start == latest)
    since = sent.messages[latest[0] :]
    number = sum(message.get("role") == "assistant" for message in since)
    if number >= len(conversation.steps):
        raise UnexpectedRequest(f"{conversation.name} has no step {number + 1}")
    step = conversation.steps[number]
    play = MatchedStep(conversation=conversation, number=number, step=step, values=_captured(conversation, since))
    for mismatch in expectation_failures(step.expect, sent):
        raise UnexpectedRequest(f"{play.title}: {mismatch}")
    return play


def expectation_failures(expect: Expectation, sent: ChatRequest) -> Iterator[str]:
    """Yields a sentence for each expectation that the request does not meet."""
    last = sent.messages[-1]
    if mismatch := expect.last.mismatch(message_text(last)):
        yield f"the last message is not as expected: {mismatch}"
    if mismatch := expect.system.mismatch(sent.system):
        yield f"the system prompt is not as expected: {mismatch}"
    execution = _newest_execution(sent)
    if expect.tool is not None and execution.get("function_name") != expect.tool:
        yield f"the last result is of {execution.get('function_name')}, not of {expect.tool}"
    succeeded = json_fields(execution.get("result")).get("success")
    if expect.success is not None and succeeded is not expect.success:
        yield f"the success of the last result is {succeeded}"
    if len(sent.messages) < expect.messages_min:
        yield f"there are only {len(sent.messages)} messages"
    if expect.messages_max is not None and len(sent.messages) > expect.messages_max:
        yield f"there are {len(sent.messages)} messages"
    yield from (f"{tool} is not offered" for tool in expect.tools if not sent.offers(tool))
    yield from (f"{tool} is offered" for tool in expect.lacks_tools if sent.offers(tool))


def json_fields(value: object) -> dict[str, object]:
    """Returns the fields of a JSON object, or none if the value is anything else."""
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def json_objects(value: object) -> list[dict[str, object]]:
    """Returns the objects in a JSON array, or none if the value is anything else. Skips other items."""
    items = cast(list[object], value) if isinstance(value, list) else ()
    return [cast(dict[str, object], one) for one in items if isinstance(one, dict)]


def message_text(message: Mapping[str, object]) -> str:
    """Returns a message's text. For a tool result, the decoded output and error are appended."""
    content = message.get("content")
    if not isinstance(content, str):
        return "\n".join(str(part.get("text") or "") for part in json_objects(content))
    values = json_fields(tool_execution(message).get("result"))
    return "\n".join((content, *(str(values.get(key)) for key in ("output", "error") if values)))


def tool_execution(message: Mapping[str, object]) -> dict[str, object]:
    """Returns the decoded `tool_execution` object of a tool result, or an empty dict for other messages."""
    content = message.get("content")
    if not isinstance(content, str) or not content.startswith(RESULT_START):
        return {}
    try:
        envelope = cast(object, json.loads(content))
    except ValueError:
        return {}
    return json_fields(json_fields(envelope).get("tool_execution"))


def _newest_execution(sent: ChatRequest) -> dict[str, object]:
    for message in reversed(sent.messages):
        if execution := tool_execution(message):
            return execution
        if message.get("role") == "tool":
            failed = _ERROR.search(message_text(message)) is not None
            return {"function_name": message.get("name"), "result": {"success": not failed}}
    return {}


def _tools_before(messages: Messages, position: int) -> Iterator[object]:
    """Yields the names of the tools whose results stand right before a message."""
    for message in reversed(messages[:position]):
        name = tool_execution(message).get("function_name")
        if name is None and message.get("role") != "tool":
            return
        yield name or message.get("name")


def _start(conversation: Conversation, sent: ChatRequest) -> tuple[int, int] | None:
    """Returns the index of the message that starts the conversation, and where the words of the condition are in it."""
    when = conversation.when
    if when.system.mismatch(sent.system) or not all(map(sent.offers, when.tools)):
        return None
    for position in range(len(sent.messages) - 1, -1, -1):
        message = sent.messages[position]
        if message.get("role") != "user" or tool_execution(message):
            continue
        if when.after is not None and when.after not in _tools_before(sent.messages, position):
            continue
        text = message_text(message)
        if when.user.mismatch(text) is None:
            return position, when.user.last_position(text)
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
    """Yields the `delta` objects of the response in order.

    Raises UnexpectedRequest if a placeholder has no captured value."""
    step = play.step
    for piece in _pieces(_filled(play, step.thinking), step.chunk_characters):
        yield {"reasoning_content": piece}
    text = _filled(play, step.text)
    if step.calls and not is_native:
        text = "\n\n".join(part for part in (text, _block(play, step.calls)) if part)
    for piece in _pieces(text, step.chunk_characters):
        yield {"content": piece}
    for piece in (step.raw,) if isinstance(step.raw, str) else step.raw:
        yield {"content": _filled(play, piece)}
    if is_native:
        for index, call in enumerate(step.calls):
            yield from _call_deltas(play, index, call)


def finish_reason(play: MatchedStep, *, is_native: bool) -> str:
    """Returns the step's own finish reason or, if it has none, the reason that fits the response."""
    natural = "tool_calls" if play.step.calls and is_native else "stop"
    return play.step.finish_reason or natural


def whole_message(pieces: list[JsonObject]) -> JsonObject:
    """Combines the deltas into one message, for a request without streaming."""
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
    """Returns the step's own usage or, if it has none, an estimate from the number of characters."""
    told = play.step.usage
    if told is None:
        tokens_in, tokens_out = input_characters // 4 + 1, output_characters // 4 + 1
        return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    counted: JsonObject = {
        "prompt_tokens": told.input_tokens,
        "completion_tokens": told.output_tokens,
        "total_tokens": told.input_tokens + told.output_tokens,
        "prompt_tokens_details": {"cached_tokens": told.cached_tokens},
    }
    return counted if told.cost_usd is None else {**counted, "cost": told.cost_usd}


def delta_length(piece: JsonObject) -> int:
    """Returns the number of characters of content and call arguments in a delta."""
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


def _pieces(text: str, characters: int) -> Iterator[str]:
    for start in range(0, len(text), characters):
        yield text[start : start + characters]
