"""The ReAct dialect: labelled lines (Thought, Action, Action Input, Observation).

For models that can use neither native tool calls nor the XML dialect."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.dialects.dialect import ToolSpec
from core.dialects.react_parser import ReactParser
from core.dialects.xml import TextCallParser, TextDialect, example_arguments
from core.domain.json import JsonObject
from core.domain.messages import ToolCall

_RULES = """# Calling tools

Write every answer in lines that begin with one of these labels. To use a tool:

Thought: what you know, and what to do next
Action: the name of one tool
Action Input: its arguments, as one JSON object

Then stop writing. The observation, the tool's result as JSON, comes back in the next message; never write one yourself.
When you know enough, or no tool is needed:

Thought: why this is enough
Final Answer: the answer for the people, in Markdown

People see the final answer and not your thoughts.

# Tools"""


@dataclass(frozen=True, slots=True)
class ReactDialect(TextDialect):
    """The dialect that writes calls as labelled lines, one action at a time."""

    name: str = "react"
    stop_sequences: tuple[str, ...] = ("\nObservation:",)

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """Returns no schemas, but a text for the system prompt that describes the tools."""
        return (), "\n\n".join((_RULES, *map(_described, tools))) if tools else ""

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> TextCallParser:
        return TextCallParser(ReactParser(tools, calls_max=calls_max), tools)

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """Returns metadata about the call. `raw_parameters` is the arguments' JSON text."""
        return {
            "format": "react",
            "raw_xml": None,
            "raw_text": call.raw,
            "function_name": call.name,
            "raw_parameters": json.dumps(call.arguments, ensure_ascii=False),
        }


def _described(tool: ToolSpec) -> str:
    example = json.dumps(example_arguments(tool), ensure_ascii=False)
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    lines = (
        f"## {tool.name}",
        tool.description,
        f"Arguments (JSON schema): {schema}",
        f"Action: {tool.name}\nAction Input: {example}",
    )
    return "\n".join(line for line in lines if line)
