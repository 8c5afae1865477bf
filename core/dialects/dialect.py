"""What the loop asks of a dialect: how tools are offered, how calls are read, how results are written down."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.domain.messages import JsonObject, ToolCall
from core.ports import TextDelta, ToolCallDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """`parameters` is a JSON schema of type object. `example` are arguments that show a typical call.

    `content_parameter` names the parameter that stands between the tags in the older XML form.
    """

    name: str
    description: str
    parameters: JsonObject
    example: JsonObject | None = None
    content_parameter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayText:
    """Text for people; never holds call markup, not even the start of a tag."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """A native call on its way. `arguments` is the JSON text so far; told at growing distances, so work is linear."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallComplete:
    """A call that will not change any more. `index` counts the calls of one answer from 0, in order."""

    index: int
    call: ToolCall


ParsedPart = DisplayText | CallProgress | CallComplete


class CallParser(Protocol):
    """Reads one answer of a model. The calls and the text do not depend on how the answer was cut into deltas."""

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """What the delta made certain. Calls come complete as early as that can be known."""
        ...

    def close(self, *, is_whole: bool) -> Sequence[ParsedPart]:
        """The end of the answer. Of an interrupted one (`is_whole` False) a half-written call vanishes."""
        ...

    @property
    def text(self) -> str:
        """The text to store. For XML it holds the calls; before `close` it ends with the last complete one."""
        ...


class Dialect(Protocol):
    """How a model writes tool calls."""

    @property
    def name(self) -> str:
        """The setting's word for it: native, xml or react."""
        ...

    @property
    def stop_sequences(self) -> tuple[str, ...]:
        """Where a model must stop writing, because what follows is not its own to say."""
        ...

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """The schemas for `ModelRequest.tools`, and the text for the system prompt."""
        ...

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> CallParser:
        """A parser for one answer. With `calls_max` everything after that many calls is left unread (0: no limit)."""
        ...

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """The content of the stored assistant message, OpenAI-shaped."""
        ...

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """The content of the stored tool message; `result` is `{"success", "output", "error"}`."""
        ...

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """What the tool message's metadata keeps of how the call was written."""
        ...


def xml_tag_name(function_name: str) -> str:
    """A tool's name as the older XML form writes it: with dashes."""
    return function_name.replace("_", "-")


def format_tool_result(call: ToolCall, result: JsonObject, *, call_id: str | None) -> str:
    """The JSON text of `{"tool_execution": {...}}`."""
    execution: JsonObject = {
        "function_name": call.name,
        "xml_tag_name": xml_tag_name(call.name),
        "tool_call_id": call_id,
        "arguments": call.arguments,
        "result": result,
    }
    return json.dumps({"tool_execution": execution}, ensure_ascii=False)
