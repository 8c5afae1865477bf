"""The XML dialect: calls as XML tags in the model's text, for models whose API does not support tool calls."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import JsonValue

from core.dialects.dialect import CallComplete, ToolSpec, format_tool_result, xml_tag_name
from core.dialects.xml_lexer import BLOCK_TAGS, TagGrammar
from core.dialects.xml_parser import XmlParser, XmlTools
from core.domain.messages import JsonObject, ToolCall
from core.ports import TextDelta

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
    if not tools:
        return ""
    return "\n\n".join((_RULES, *(_described(tool) for tool in tools)))


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
    parameters = [
        f'<parameter name="{key}">{format_value(value)}</parameter>'
        for key, value in arguments.items()
    ]
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
        lines.append(_parameter_line(name, schema, is_required=name in needed))
    lines.append(format_call(tool.name, example_arguments(tool)))
    return "\n".join(line for line in lines if line)


def _parameter_line(name: str, schema: JsonValue, *, is_required: bool) -> str:
    facts = [describe_type(schema), "required" if is_required else "optional"]
    text = ""
    if isinstance(schema, dict):
        if not is_required and schema.get("default") is not None:
            facts.append(f"default {format_value(schema['default'])}")
        text = str(schema.get("description") or "")
    return f"- {name} ({', '.join(facts)}){': ' if text else ''}{text}"


def describe_type(schema: JsonValue) -> str:
    """Returns a short description of a schema's type, such as "integer", "string or array" or "one of a, b"."""
    if not isinstance(schema, dict):
        return "any"
    choices = schema.get("enum")
    if isinstance(choices, list):
        return "one of " + ", ".join(map(str, choices))
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list):
            kinds = [describe_type(option) for option in options]
            return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind if one != "null")
    return str(kind or "object" if "$ref" in schema else kind or "any")


def _sample(name: str, schema: JsonValue) -> JsonValue:
    kind = describe_type(schema)
    if isinstance(schema, dict):
        choices = schema.get("enum") or schema.get("examples")
        if isinstance(choices, list) and choices:
            return choices[0]
    samples: dict[str, JsonValue] = {"integer": 1, "number": 1.5, "boolean": True}
    structures: dict[str, JsonValue] = {"array": [], "object": {}}
    return {**samples, **structures}.get(kind, f"{name} here")


@dataclass(frozen=True, slots=True)
class XmlDialect:
    """The dialect that writes calls as `<function_calls>` blocks, or in the older format with one tag per tool."""

    name: str = "xml"
    stop_sequences: tuple[str, ...] = ()

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """Returns no schemas, but a text for the system prompt that describes the tools."""
        return (), describe_tools(tools)

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> XmlParser:
        """Returns a parser for one answer. Tags of the older call format may use dashes or underscores."""
        by_tag = {
            tag.lower(): tool
            for tool in tools.values()
            for tag in (tool.name, xml_tag_name(tool.name))
            if tag.lower() not in BLOCK_TAGS
        }
        xml_tools = XmlTools(
            by_name=tools, by_tag=by_tag, grammar=_grammar(tuple(by_tag)), calls_max=calls_max
        )
        return XmlParser(xml_tools)

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """Returns an assistant message without `tool_calls`, because the text contains the calls."""
        return {"role": "assistant", "content": text, "tool_calls": None}

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """Returns a user message, because models without tool calls do not support the role `tool`."""
        return {"role": "user", "content": format_tool_result(call, result, call_id=None)}

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """Returns metadata about the call. `raw_parameters` holds the values as text."""
        return {
            "format": "xml",
            "raw_xml": call.raw,
            "function_name": call.name,
            "raw_parameters": {key: format_value(value) for key, value in call.arguments.items()},
        }


_PREFIX = re.compile(
    r"(</?)(?:antml:|minimax:|[|｜]{1,2}DSML[|｜]{1,2})(?=(?:invoke|parameter)\b)", re.IGNORECASE
)


def read_invokes(body: str, tools: Mapping[str, ToolSpec]) -> Iterator[ToolCall]:
    """Yields the calls in a block of `<invoke>` elements. Tags may have the prefix of a model."""
    plain = _PREFIX.sub(r"\1", body)
    head, _, tag = plain.rstrip().rpartition("</")
    block = head if tag.lower() in ("function_calls>", "tool_call>", "tool_calls>") else plain
    parser = XmlDialect().parser(tools)
    delta = TextDelta(text=f"<function_calls>{block[block.find('<invoke') :]}</function_calls>")
    for part in (*parser.feed(delta), *parser.close(is_whole=True)):
        if isinstance(part, CallComplete):
            yield part.call


@lru_cache(maxsize=64)
def _grammar(tool_names: tuple[str, ...]) -> TagGrammar:
    return TagGrammar(block=True, tool_names=tool_names, has_prose=True)
