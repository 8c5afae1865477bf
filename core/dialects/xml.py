"""The XML dialect: calls as tags in the model's text, for models without an interface of their own for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from core.dialects.envelope import result_text, tag_name
from core.dialects.spec import ToolSpec
from core.dialects.xml_lexer import BLOCK_TAGS, Grammar
from core.dialects.xml_parser import XmlParser
from core.dialects.xml_prompt import tools_prompt, written_value
from core.domain.messages import JsonObject, ToolCall


@dataclass(frozen=True, slots=True)
class XmlDialect:
    """`<function_calls>` blocks, and the older form with one tag per tool."""

    name: str = "xml"
    stop_sequences: tuple[str, ...] = ()

    def request_parts(self, tools: Sequence[ToolSpec]) -> tuple[tuple[JsonObject, ...], str]:
        """No schemas; the prompt explains everything."""
        return (), tools_prompt(tools)

    def parser(self, tools: Mapping[str, ToolSpec], *, calls_max: int = 0) -> XmlParser:
        """A tool's older form may be written with dashes or underscores."""
        by_tag = {
            tag.lower(): tool
            for tool in tools.values()
            for tag in (tool.name, tag_name(tool.name))
            if tag.lower() not in BLOCK_TAGS
        }
        return XmlParser(tools, by_tag, _grammar(tuple(by_tag)), calls_max=calls_max)

    def assistant_content(self, text: str, calls: Sequence[ToolCall]) -> JsonObject:
        """The calls are part of the text."""
        return {"role": "assistant", "content": text, "tool_calls": None}

    def result_content(self, call: ToolCall, result: JsonObject) -> JsonObject:
        """A user message: models without tool calls know no role for results."""
        return {"role": "user", "content": result_text(call, result, call_id=None)}

    def parsing_details(self, call: ToolCall) -> JsonObject:
        """`raw_parameters` are the values as text."""
        return {
            "format": "xml",
            "raw_xml": call.raw,
            "function_name": call.name,
            "raw_parameters": {key: written_value(value) for key, value in call.arguments.items()},
        }


@lru_cache(maxsize=64)
def _grammar(tool_names: tuple[str, ...]) -> Grammar:
    return Grammar(block=True, tool_names=tool_names, has_prose=True)
