"""Which step of a scenario answers a request, by the request alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from core.llm.scripted.scenario import Conversation, Expectation, Scenario, Step

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class Unexpected(Exception):
    """The scenario has no answer to a request; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A chat request as the scenario sees it. `tools` are the names that are offered natively."""

    messages: tuple[Mapping[str, object], ...]
    tools: frozenset[str]

    @property
    def system(self) -> str:
        return "\n".join(text_of(one) for one in self.messages if one.get("role") == "system")

    def offers(self, tool: str) -> bool:
        """Natively, or by its heading or example in the system prompt."""
        return tool in self.tools or (not self.tools and f'<invoke name="{tool}">' in self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
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
            raise Unexpected(f"{self.title}: nothing was captured for {{{{{name}}}}}")
        return self.values[name]

    @property
    def title(self) -> str:
        return f"{self.conversation.name}, step {self.number + 1}"


def choose(scenario: Scenario, sent: Sent) -> Play:
    """The step for the request. Raises Unexpected where there is none, or an expectation of it does not hold."""
    started = [
        (start, conversation)
        for conversation in scenario.conversations
        if (start := _start(conversation, sent)) is not None
    ]
    if not started:
        raise Unexpected("no conversation of the scenario begins with any of these messages")
    latest = max(start for start, _ in started)
    conversation = next(found for start, found in started if start == latest)
    since = sent.messages[latest:]
    number = sum(message.get("role") == "assistant" for message in since)
    if number >= len(conversation.steps):
        raise Unexpected(f"{conversation.name} has no step {number + 1}")
    step = conversation.steps[number]
    play = Play(
        conversation=conversation, number=number, step=step, values=_captured(conversation, since)
    )
    for complaint in complaints(step.expect, sent):
        raise Unexpected(f"{play.title}: {complaint}")
    return play


def complaints(expect: Expectation, sent: Sent) -> Iterator[str]:
    """Everything about the request that is not as expected."""
    last = sent.messages[-1]
    if complaint := expect.last.complaint(text_of(last)):
        yield f"the last message is not as expected: {complaint}"
    if complaint := expect.system.complaint(sent.system):
        yield f"the system prompt is not as expected: {complaint}"
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


def text_of(message: Mapping[str, object]) -> str:
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


def _newest_execution(sent: Sent) -> dict[str, object]:
    for message in reversed(sent.messages):
        if execution := tool_execution(message):
            return execution
    return {}


def _start(conversation: Conversation, sent: Sent) -> int | None:
    when = conversation.when
    if when.system.complaint(sent.system) or not all(map(sent.offers, when.tools)):
        return None
    for position in range(len(sent.messages) - 1, -1, -1):
        message = sent.messages[position]
        if message.get("role") != "user" or tool_execution(message):
            continue
        if when.user.complaint(text_of(message)) is None:
            return position
    return None


def _captured(conversation: Conversation, since: Sequence[Mapping[str, object]]) -> dict[str, str]:
    values: dict[str, str] = {}
    heard = [text_of(one) for one in reversed(since) if one.get("role") in ("user", "tool")]
    for name, pattern in conversation.capture.items():
        found = next(filter(None, (re.search(pattern, text) for text in heard)), None)
        if found is not None:
            values[name] = found.group(1) if found.re.groups else found.group()
    return values
