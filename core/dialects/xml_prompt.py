"""The part of the system prompt that teaches a model the XML dialect, with one example per enabled tool."""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from core.dialects.spec import ToolSpec
from core.domain.messages import JsonObject

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


def tools_prompt(tools: Sequence[ToolSpec]) -> str:
    """Empty without tools."""
    if not tools:
        return ""
    return "\n\n".join((_RULES, *(_described(tool) for tool in tools)))


def example_arguments(tool: ToolSpec) -> JsonObject:
    """The tool's own example, or one made of its required parameters."""
    if tool.example is not None:
        return tool.example
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _sample(name, schema) for name, schema in properties.items() if name in required}


def written_call(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """One call as text, with its block around it."""
    return f"<function_calls>\n{written_invoke(name, arguments)}\n</function_calls>"


def written_invoke(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """One call as text, without a block: text verbatim, everything else as JSON."""
    parameters = [
        f'<parameter name="{key}">{written_value(value)}</parameter>'
        for key, value in arguments.items()
    ]
    return "\n".join((f'<invoke name="{name}">', *parameters, "</invoke>"))


def written_value(value: JsonValue) -> str:
    """Text verbatim, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _described(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    lines = [f"## {tool.name}", tool.description]
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        lines.append(_parameter_line(name, schema, is_required=name in needed))
    lines.append(written_call(tool.name, example_arguments(tool)))
    return "\n".join(line for line in lines if line)


def _parameter_line(name: str, schema: JsonValue, *, is_required: bool) -> str:
    facts = [kind_of(schema), "required" if is_required else "optional"]
    text = ""
    if isinstance(schema, dict):
        if not is_required and schema.get("default") is not None:
            facts.append(f"default {written_value(schema['default'])}")
        text = str(schema.get("description") or "")
    return f"- {name} ({', '.join(facts)}){': ' if text else ''}{text}"


def kind_of(schema: JsonValue) -> str:
    """A schema in a few words: "integer", "string or array", "one of a, b"."""
    if not isinstance(schema, dict):
        return "any"
    choices = schema.get("enum")
    if isinstance(choices, list):
        return "one of " + ", ".join(map(str, choices))
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list):
            kinds = [kind_of(option) for option in options]
            return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind if one != "null")
    return str(kind or "object" if "$ref" in schema else kind or "any")


def _sample(name: str, schema: JsonValue) -> JsonValue:
    kind = kind_of(schema)
    if isinstance(schema, dict):
        choices = schema.get("enum") or schema.get("examples")
        if isinstance(choices, list) and choices:
            return choices[0]
    samples: dict[str, JsonValue] = {"integer": 1, "number": 1.5, "boolean": True}
    structures: dict[str, JsonValue] = {"array": [], "object": {}}
    return {**samples, **structures}.get(kind, f"{name} here")
