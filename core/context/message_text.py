"""Converts stored messages to readable text."""

import json

from pydantic import JsonValue

from core.domain.messages import Message


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


def _result(content: JsonValue) -> str:
    """Returns a tool result's call and output, with real newlines instead of JSON escapes."""
    text = content_text(content)
    try:
        envelope: JsonValue = json.loads(text)
    except ValueError:
        return text
    execution = envelope.get("tool_execution") if isinstance(envelope, dict) else None
    result = execution.get("result") if isinstance(execution, dict) else None
    if not isinstance(execution, dict) or not isinstance(result, dict):
        return text
    called = json.dumps(execution.get("arguments"), ensure_ascii=False)
    output = result.get("output") if result.get("output") is not None else result.get("error")
    shown = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return f"{execution.get('function_name')} {called}\n{shown}"
