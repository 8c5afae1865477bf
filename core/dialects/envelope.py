"""The envelope in which every tool result is stored and sent, whatever the dialect."""

import json

from core.domain.messages import JsonObject, ToolCall


def tag_name(function_name: str) -> str:
    """A tool's name as the older XML form writes it: with dashes."""
    return function_name.replace("_", "-")


def result_text(call: ToolCall, result: JsonObject, *, call_id: str | None) -> str:
    """The JSON text of `{"tool_execution": {...}}`."""
    execution: JsonObject = {
        "function_name": call.name,
        "xml_tag_name": tag_name(call.name),
        "tool_call_id": call_id,
        "arguments": call.arguments,
        "result": result,
    }
    return json.dumps({"tool_execution": execution}, ensure_ascii=False)
