"""Repairs results of MCP servers that break the protocol, so that the other parts of a result are not lost with an
invalid one."""

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp.types import BlobResourceContents, ContentBlock, TextResourceContents
from pydantic import TypeAdapter, ValidationError

from core.context.untrusted_text import clean_line
from core.domain.json import json_fields

MALFORMED = "The server's answer is malformed."
_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)
_RESOURCE: TypeAdapter[Any] = TypeAdapter(TextResourceContents | BlobResourceContents)
_DISPENSABLE = ("mimeType", "name", "uri")
"""Fields of a part that the protocol requires and that a reader can do without."""


def repair_result(result: dict[str, Any]) -> None:
    """Replaces the parts because of which the SDK would reject the whole result.

    A part keeps what can be read of it, or else becomes a text that says that it is left out. Only results of calls,
    prompts and resources are changed."""
    if "content" in result or "structuredContent" in result:
        content: Any = result.get("content")
        parts = cast(list[Any], content) if isinstance(content, list) else [] if content is None else [content]
        result["content"] = [_fit_block(part) for part in parts]
        for name, kind in (("isError", bool), ("_meta", dict)):
            if not isinstance(result.get(name), kind):
                result.pop(name, None)
    if isinstance(result.get("messages"), list):
        messages = list(map(json_fields, result["messages"]))
        result["messages"] = [
            {
                "role": "assistant" if message.get("role") == "assistant" else "user",
                "content": _fit_block(message.get("content")),
            }
            for message in messages
        ]
    if isinstance(result.get("contents"), list):
        result["contents"] = [_fit_resource(resource) for resource in result["contents"]]


def _fit_block(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    fields = json_fields(part)
    if isinstance(fields.get("resource"), dict):
        fields = {**fields, "resource": _fit_resource(fields["resource"])}
    # pydantic would take a part without a type for a link
    tries = (fields, _known_fields(fields)) if isinstance(fields.get("type"), str) else ()
    return _first_valid(_BLOCK, *tries) or {"type": "text", "text": _without_protocol(fields)}


def _fit_resource(resource: object) -> dict[str, Any]:
    fields = json_fields(resource)
    known = _known_fields(fields)
    return _first_valid(_RESOURCE, fields, known) or {"uri": str(known["uri"]), "text": _without_protocol(fields)}


def _known_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields that are read, with an empty text for those that are missing."""
    wanted = ("type", "text", "data", "blob", "resource", "title", "description", *_DISPENSABLE)
    kept = {name: fields[name] for name in wanted if isinstance(fields.get(name), str | dict)}
    return {**dict.fromkeys(_DISPENSABLE, ""), **kept}


def _first_valid(adapter: TypeAdapter[Any], *tries: Mapping[str, object]) -> dict[str, Any] | None:
    for fields in tries:
        try:
            adapter.validate_python(fields, by_name=False)
        except ValidationError:
            continue
        return dict(fields)
    return None


def _without_protocol(fields: Mapping[str, object]) -> str:
    """Returns the text of a part that breaks the protocol, or a note that it is left out."""
    text = fields.get("text")
    if isinstance(text, str):
        return text
    if isinstance(text, dict | list | int | float):
        return json.dumps(text, ensure_ascii=False)
    kind = clean_line(str(fields.get("type") or "unknown"), 60)
    return f"[a part of the type {kind} is left out: it does not follow the protocol]"
