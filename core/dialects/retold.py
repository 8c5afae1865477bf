"""A conversation whose calls were made natively, for a model that writes its calls as text: agents of one thread may
differ in it."""

import json
from collections.abc import Iterator
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from core.dialects.xml_prompt import written_call
from core.domain.messages import JsonObject
from core.ports import ModelRequest

_ARGUMENTS: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def retold(request: ModelRequest, dialect_name: str) -> ModelRequest:
    """The same request, message for message. Calls that were text from the start stay as they are, for any model."""
    if dialect_name == "native":
        return request
    messages = tuple(_retold(one, dialect_name) for one in request.messages)
    return replace(request, messages=messages)


def _retold(message: JsonObject, dialect_name: str) -> JsonObject:
    if message.get("role") == "tool":
        return {"role": "user", "content": message.get("content")}
    calls = list(_calls(message))
    if not calls:
        return message
    said = str(message.get("content") or "")
    written = [_written(name, arguments, dialect_name) for name, arguments in calls]
    return {"role": "assistant", "content": "\n".join(one for one in (said, *written) if one)}


def _calls(message: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield str(function.get("name")), _arguments(function.get("arguments"))


def _arguments(raw: object) -> JsonObject:
    """What cannot be read was answered with an error, and stands here without its arguments."""
    try:
        return _ARGUMENTS.validate_json(raw if isinstance(raw, str) else "{}")
    except ValidationError:
        return {}


def _written(name: str, arguments: JsonObject, dialect_name: str) -> str:
    if dialect_name == "xml":
        return written_call(name, arguments)
    return f"Action: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}"
