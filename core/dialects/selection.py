"""Selects the dialect for a model, and rewrites histories for models that use a text dialect."""

import json
import re
from dataclasses import replace
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from core.context.role_alternation import join_adjacent_roles
from core.dialects.dialect import Dialect, ToolSpec
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect, format_call
from core.domain.errors import ConfigurationError
from core.domain.json import JsonObject, json_fields, json_objects
from core.ports import ModelRequest

_WITHOUT_TOOL_CALLS = re.compile(
    r"(?:^|[/:])(?:o1-(?:mini|preview)|deepseek-r1|gemma|codegemma|phi-?[23]|llama-?2|codellama|tinyllama"
    r"|vicuna|wizardlm|starcoder|solar|yi-|mixtral-8x7b|qwq|sonar|gpt-3\.5-turbo-instruct|chatgpt-4o)",
    re.IGNORECASE,
)
"""Model families whose API has no tool calls or handles them unreliably. All other models use the native dialect."""


def select_dialect(model: str, setting: str) -> Dialect:
    """Returns the dialect for a setting; `auto` chooses by the model's name.

    Raises ConfigurationError if the setting is unknown."""
    match setting:
        case "native":
            return NativeDialect()
        case "xml":
            return XmlDialect()
        case "react":
            return ReactDialect()
        case "auto":
            return XmlDialect() if _WITHOUT_TOOL_CALLS.search(model) else NativeDialect()
        case _:
            raise ConfigurationError(
                f"The dialect {setting!r} is not available. Set THREADHAND_DIALECT to auto, native, xml or react."
            )


_ARGUMENTS: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def write_calls_as_text(request: ModelRequest, dialect_name: str) -> ModelRequest:
    """Returns the request with native tool calls and results rewritten as text in the given dialect.

    Messages of one role that are adjacent then are joined. Calls that were already text stay unchanged, even if they
    use another dialect."""
    if dialect_name == "native":
        return request
    messages = tuple(join_adjacent_roles(_with_calls_as_text(message, dialect_name) for message in request.messages))
    passing = len(request.messages) - request.stable_messages
    return replace(request, messages=messages, stable_messages=max(0, len(messages) - passing))


def write_tools_as_text(request: ModelRequest) -> ModelRequest:
    """Returns the request without tools. The system prompt describes them in the XML dialect, whose calls the native
    dialect reads as well, and calls and results are text."""
    tools = [ToolSpec(**cast("dict[str, Any]", tool["function"])) for tool in request.tools]
    system, *others = (
        {**message, "content": f"Result of {message.get('name')}:\n{message.get('content')}"}
        if message.get("role") == "tool"
        else message
        for message in request.messages
    )
    messages = ({**system, "content": f"{system.get('content')}\n\n{XmlDialect().request_parts(tools)[1]}"}, *others)
    return write_calls_as_text(replace(request, messages=messages, tools=()), "xml")


def _with_calls_as_text(message: JsonObject, dialect_name: str) -> JsonObject:
    if message.get("role") == "tool":
        return {"role": "user", "content": message.get("content")}
    text, written = str(message.get("content") or ""), list[str]()
    for call in json_objects(message.get("tool_calls")):
        function = json_fields(call.get("function"))
        if not function:
            continue
        name, raw = str(function.get("name")), function.get("arguments")
        try:
            arguments = _ARGUMENTS.validate_json(raw if isinstance(raw, str) else "{}")
        except ValidationError:
            arguments: JsonObject = {}  # the model has already received an error for them
        if dialect_name == "xml":
            written.append(format_call(name, arguments))
        else:
            written.append(f"Action: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}")
    return {"role": "assistant", "content": "\n".join(filter(None, (text, *written)))} if written else message
