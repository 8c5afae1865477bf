"""The XML dialect: calls as XML tags in the model's text, for models whose API does not support tool calls."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue

from core.dialects.arguments import find_reference
from core.dialects.call_formats import UNREADABLE
from core.dialects.dialect import CallComplete, CallParser, DisplayText, ParsedPart, ToolSpec, format_tool_result
from core.dialects.written_calls import WrittenCalls
from core.dialects.xml_parser import new_xml_parser
from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

_RULES = """# Calling tools

To use tools, write a block like this anywhere in your answer, outside of code fences and backticks:

<function_calls>
<invoke name="tool_name">
<parameter name="parameter_name">value</parameter>
</invoke>
</function_calls>

- Several <invoke> elements may stand in one block; they may run at the same time.
- A value is taken exactly as it stands between the tags: no escaping, no quotes around it, no CDATA, and no line break
  at its start or end unless it is meant. Lists and objects are written as JSON.
- Close every <parameter>, every <invoke> and the block. Leave out optional parameters that you do not need.
- The results come back in the next message. Never write results yourself.

# Tools"""


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Returns the text that describes the tools in the system prompt, or an empty text if there are no tools."""
    return "\n\n".join((_RULES, *map(_described, tools))) if tools else ""


def example_arguments(tool: ToolSpec) -> JsonObject:
    """Returns the tool's own example arguments or, if it has none, generated values for its required parameters."""
    if tool.example is not None:
        return tool.example
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _sample(name, schema) for name, schema in properties.items() if name in required}


def format_call(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """Returns one call as text, inside a `<function_calls>` block."""
    return f"<function_calls>\n{format_invoke(name, arguments)}\n</function_calls>"


def format_invoke(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """Returns one call as an `<invoke>` element, without a block around it."""
    parameters = [f'<parameter name="{key}">{format_value(value)}</parameter>' for key, value in arguments.items()]
    return "\n".join((f'<invoke name="{name}">', *parameters, "</invoke>"))


def format_value(value: JsonValue) -> str:
    """Returns a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _described(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    lines = [f"## {tool.name}", tool.description]
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        is_required = name in needed
        facts = [describe_type(schema, tool.parameters), "required" if is_required else "optional"]
        text = ""
        if isinstance(schema, dict):
            if not is_required and schema.get("default") is not None:
                facts.append(f"default {format_value(schema['default'])}")
            text = str(schema.get("description") or "")
        line = f"- {name} ({', '.join(facts)}){': ' if text else ''}{text}"
        lines.append(line)
    lines.append(format_call(tool.name, example_arguments(tool)))
    return "\n".join(line for line in lines if line)


NESTED_MAX = 3
FIELDS_MAX = 20


def describe_type(schema: JsonValue, root: JsonObject | None = None, depth: int = 0) -> str:
    """Returns a short description of a schema's type, such as "integer", "string or array", "one of a, b" or "array of
    {name: string, age?: integer}". `root` is the schema that references refer to, `depth` how deep this one lies."""
    if isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        schema = find_reference(reference, root or {})
    if not isinstance(schema, dict):
        return "any"
    choices = schema.get("enum")
    if isinstance(choices, list):
        return "one of " + ", ".join(map(str, choices))
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list):
            kinds = [describe_type(option, root, depth) for option in options]
            return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind if one != "null")
    items, fields = schema.get("items"), schema.get("properties")
    if depth < NESTED_MAX and isinstance(items, dict):
        return f"array of {describe_type(items, root, depth + 1)}"
    if depth < NESTED_MAX and isinstance(fields, dict) and fields:
        required = schema.get("required")
        depth = depth + 1
        needed = required if isinstance(required, list) else []
        shown = [
            f"{name}{'' if name in needed else '?'}: {describe_type(schema, root, depth)}"
            for name, schema in islice(fields.items(), FIELDS_MAX)
        ]
        return f"{{{', '.join(shown)}}}"
    return str(kind or "any")


def _sample(name: str, schema: JsonValue) -> JsonValue:
    kind = describe_type(schema)
    if isinstance(schema, dict):
        choices = schema.get("enum") or schema.get("examples")
        if isinstance(choices, list) and choices:
            return choices[0]
    samples: dict[str, JsonValue] = {"integer": 1, "number": 1.5, "boolean": True}
    structures: dict[str, JsonValue] = {"array": [], "object": {}}
    word = "array" if kind.startswith("array") else "object" if kind.startswith("{") else kind
    return {**samples, **structures}.get(word, f"{name} here")


_OWN_MARKS = frozenset({"<function_calls>", "</function_calls>", "<invoke name=", "</invoke>"})


class TextCallParser:
    """Parses one answer in a text dialect, and looks for calls in other formats in what its parser takes for text.

    Models without tool calls fall back to the formats of their training, too. Such calls are completed at the end."""

    __slots__ = ("_calls_count", "_parser", "_written")

    def __init__(self, parser: CallParser, tools: Mapping[str, ToolSpec], own: frozenset[str] = frozenset()) -> None:
        """`own` are the marks that the parser reads itself, so they are text wherever it takes them for text."""
        self._parser = parser
        self._written = WrittenCalls(tools, own)
        self._calls_count = 0

    @property
    def raw_answer(self) -> str:
        """The text of the answer with its calls, as the parser of the dialect returns it."""
        text = self._parser.raw_answer
        return text[: len(text) - self._written.cut_characters]

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text and calls that are certain after this delta."""
        return (*self._read(self._parser.feed(delta)),)

    def close(self, *, is_whole: bool, cut: str = "") -> Sequence[ParsedPart]:
        """Returns the remaining text and calls. Marks that contain no call count only if there is no other call."""
        parsed = [*self._read(self._parser.close(is_whole=is_whole, cut=cut))]
        if text := self._written.close(is_whole=is_whole, cut=cut):
            parsed.append(DisplayText(text=text))
        for call in self._written.calls if is_whole or cut else ():
            is_mark = call.problem == UNREADABLE and "{" not in call.raw
            if not (is_mark and self._calls_count):
                parsed.append(CallComplete(index=self._calls_count, call=call))
                self._calls_count += 1
        return parsed

    def _read(self, parts: Sequence[ParsedPart]) -> Iterator[ParsedPart]:
        for part in parts:
            if not isinstance(part, DisplayText):
                self._calls_count += isinstance(part, CallComplete)
                self._written.follows_calls = self._calls_count > 0
                yield part
            elif text := self._written.feed(part.text):
                yield DisplayText(text=text)


class TextDialect:
    """What the dialects that write calls into the text have in common."""

    __slots__ = ()

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """Returns an assistant message without `tool_calls`, because the text contains the calls."""
        return {"role": "assistant", "content": text, "tool_calls": None}

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """Returns a user message, because models without tool calls do not support the role `tool`."""
        return {"role": "user", "content": format_tool_result(call, result, call_id=None)}


@dataclass(frozen=True, slots=True)
class XmlDialect(TextDialect):
    """The dialect that writes calls as `<function_calls>` blocks, or in the older format with one tag per tool."""

    name: str = "xml"
    stop_sequences: tuple[str, ...] = ()

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """Returns no schemas, but a text for the system prompt that describes the tools."""
        return (), describe_tools(tools)

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> TextCallParser:
        return TextCallParser(new_xml_parser(tools, calls_max), tools, _OWN_MARKS)

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """Returns metadata about the call. `raw_parameters` holds the values as text."""
        return {
            "format": "xml",
            "raw_xml": call.raw,
            "function_name": call.name,
            "raw_parameters": {key: format_value(value) for key, value in call.arguments.items()},
        }
