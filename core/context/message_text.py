"""Converts stored messages to readable text, and to what a model receives."""

import json
from dataclasses import replace

from pydantic import JsonValue

from core.domain.messages import JsonObject, Message


def full_message_text(message: Message) -> str:
    """Returns the message's text and tool calls; for a tool result, the call and its output."""
    content = message.content.get("content")
    parts = [_result(content) if message.type == "tool" else content_text(content)]
    calls = message.content.get("tool_calls")
    if calls:
        parts.append(json.dumps(calls, ensure_ascii=False))
    return "\n".join(part for part in parts if part)


def content_text(content: JsonValue) -> str:
    """Returns the text of a message's `content` value, with a placeholder for each image."""
    if isinstance(content, list):
        return "\n".join(
            str(part["text"]) if isinstance(part, dict) and "text" in part else "[an image]"
            for part in content
        )
    return content if isinstance(content, str) else ""


def for_model(message: Message, *, is_native: bool) -> Message:
    """Returns a tool message without the call's arguments, which the model has written itself; others unchanged.

    In the native dialect, it contains only the output or the error. In text dialects the result stays in its JSON
    object, because user messages do not show otherwise which text is data.
    """
    execution = _execution(message.content.get("content")) if message.type == "tool" else None
    if execution is None:
        return message
    if is_native and message.content.get("role") == "tool":
        content: JsonValue = _output(execution)
    else:
        shown: JsonObject = {key: one for key, one in execution.items() if key != "arguments"}
        content = json.dumps({"tool_execution": shown}, ensure_ascii=False)
    return replace(message, content={**message.content, "content": content}, token_count=0)


def _result(content: JsonValue) -> str:
    """Returns a tool result's call and output, with real newlines instead of JSON escapes."""
    execution = _execution(content)
    if execution is None:
        return content_text(content)
    called = json.dumps(execution.get("arguments"), ensure_ascii=False)
    return f"{execution.get('function_name')} {called}\n{_output(execution)}"


def _execution(content: JsonValue) -> JsonObject | None:
    try:
        envelope: JsonValue = json.loads(content_text(content))
    except (ValueError, RecursionError):
        return None
    execution = envelope.get("tool_execution") if isinstance(envelope, dict) else None
    return execution if isinstance(execution, dict) and "result" in execution else None


def _output(execution: JsonObject) -> str:
    """Returns the output of a call, and the error if it failed."""
    result = execution.get("result")
    if not isinstance(result, dict):
        return str(result)
    output, error = result.get("output"), result.get("error")
    shown = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    told = [shown] if output is not None else []
    if error is not None and result.get("success") is not True:
        told.append(f"Error: {error}")
    return "\n".join(told) or "(no output)"
