"""Defines the `Dialect` interface, which describes tools to a model, parses the model's calls and formats results."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from core.domain.json import JsonObject
from core.domain.messages import Message, ToolCall
from core.ports import TextDelta, ToolCallDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool that dialects send to a model.

    `parameters` is a JSON schema of type object. `example` holds the arguments of a typical call. `content_parameter`
    names the parameter whose value is the text between the tags in the older XML call format."""

    name: str
    description: str
    parameters: JsonObject
    example: JsonObject | None = None
    content_parameter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayText:
    """Text for users. It never contains markup of tool calls, not even the start of a tag."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """The state of a native call that is still streaming.

    `arguments` is the JSON text received so far. It is reported at growing intervals, so that the work is linear."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallComplete:
    """A call that will not change any more. `index` counts the calls of one answer in order, starting at 0."""

    index: int
    call: ToolCall


ParsedPart = DisplayText | CallProgress | CallComplete


class CallParser(Protocol):
    """Parses one streamed answer of a model.

    The resulting calls and text do not depend on how the answer was split into deltas."""

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text and calls that are certain after this delta. Each call is returned as early as possible."""
        ...

    def close(self, *, is_whole: bool, cut: str = "") -> Sequence[ParsedPart]:
        """Returns the remaining text and calls at the end of the answer.

        `is_whole` is False if the answer was interrupted; an incomplete call is then discarded. If a limit cut the
        answer off, `cut` says so to the model, and an incomplete call is returned with it as its `problem`."""
        ...

    @property
    def raw_answer(self) -> str:
        """The model's answer as it is stored. For XML, it includes the calls and, before `close`, ends with the last
        complete call."""
        ...


class Dialect(Protocol):
    """The format in which a model writes tool calls."""

    @property
    def name(self) -> str:
        """The dialect's name in the settings: native, xml or react."""
        ...

    @property
    def stop_sequences(self) -> tuple[str, ...]:
        """Texts at which the model must stop writing, because tool results would follow them."""
        ...

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """Returns the schemas for `ModelRequest.tools` and the text for the system prompt."""
        ...

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> CallParser:
        """Returns a parser for one answer.

        After `calls_max` calls, the parser ignores the rest of the answer; 0 means no limit."""
        ...

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """Returns the content of the stored assistant message, in OpenAI's format."""
        ...

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """Returns the content of the stored tool message. `result` is `{"success", "output", "error"}`."""
        ...

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """Returns metadata for the stored tool message about how the model wrote the call."""
        ...


def parse_message(message: Message, dialect: Dialect, tools: Mapping[str, ToolSpec]) -> list[ParsedPart]:
    """Parses the text of a stored assistant message: what users may read of it, and the calls written as text."""
    parser = dialect.parser(tools)
    text = TextDelta(text=str(message.content.get("content") or ""))
    return [*parser.feed(text), *parser.close(is_whole=True)]


def visible_text(message: Message, dialect: Dialect, tools: Mapping[str, ToolSpec]) -> str:
    """Returns the text of a stored assistant message that users may read. Spaces at its ends are kept, because the rest
    of the answer may follow."""
    parsed = parse_message(message, dialect, tools)
    return "".join(one.text for one in parsed if isinstance(one, DisplayText))


CUT_CHARACTERS_MAX = 2_000
"""How much of a call that a limit has cut off stays in the conversation."""


def as_cut_off_call(call: ToolCall, problem: str) -> ToolCall:
    """Returns the call as one that a limit has cut off: without arguments, and with only the start of its text."""
    return replace(call, arguments={}, raw=call.raw[:CUT_CHARACTERS_MAX], problem=problem)


_WRAPPED_CHARACTERS_MAX = 200
_QUOTES = " \t\r\n`'\"*()[]<>"
_CALL_NUMBER = re.compile(r":\d{1,6}\Z")
_OF_SERVER = re.compile(r"(?i)(?:\A|[\W_])mcp(?=[\W_])")
_NAMESPACES = (re.compile(r"^.*[.:/=]", re.DOTALL), re.compile(r"^.*__", re.DOTALL))


def find_tool_name(name: str, tools: Collection[str]) -> str:
    """Returns the tool that a model means by a name with a namespace (`functions.read_file`), a number, quotes, other
    letters, or a special token behind it. Returns the name unchanged if no tool or several could be meant."""
    if name in tools or len(name) > _WRAPPED_CHARACTERS_MAX:
        return name
    bare = _CALL_NUMBER.sub("", name.partition("<|")[0].strip(_QUOTES))
    for wanted in (bare, *(namespace.sub("", bare) for namespace in _NAMESPACES)):
        # the tool of a server that is gone is none of ours, although one may have its name
        is_lost = _OF_SERVER.search(bare.removesuffix(wanted))
        meant = [one for one in tools if not is_lost and _plain_name(one) == _plain_name(wanted)]
        if len(meant) == 1:
            return meant[0]
    return name


def _plain_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def xml_tag_name(function_name: str) -> str:
    """Returns a tool's tag name in the older XML call format, which uses dashes instead of underscores."""
    return function_name.replace("_", "-")


def format_tool_result(call: ToolCall, result: JsonObject, *, call_id: str | None) -> str:
    """Returns the tool result as the JSON text `{"tool_execution": {...}}`."""
    execution: JsonObject = {
        "function_name": call.name,
        "xml_tag_name": xml_tag_name(call.name),
        "tool_call_id": call_id,
        "arguments": call.arguments,
        "result": result,
    }
    return json.dumps({"tool_execution": execution}, ensure_ascii=False)
