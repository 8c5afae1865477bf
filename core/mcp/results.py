"""Converts results of MCP tools (text, data, pictures and resources) to tool outputs, within limits."""

import base64
import binascii
import json
from dataclasses import dataclass, field

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import JsonValue

from core.context.untrusted_text import clean_line, clean_text
from core.domain.messages import JsonObject, Message
from core.tools.tool import ToolContext, ToolOutput

TEXT_CHARACTERS_MAX = 200_000
RESOURCE_CHARACTERS_MAX = 30_000
PARTS_MAX = 200
IMAGES_MAX = 4
IMAGE_BYTES_MAX = 3_750_000
"""Limit for a picture: five million characters as base64, the limit of the strictest model provider."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(slots=True)
class _Reading:
    server: str
    tool: str
    context: ToolContext
    lines: list[str] = field(default_factory=list[str])
    images: list[Message] = field(default_factory=list[Message])
    characters_left: int = TEXT_CHARACTERS_MAX

    def say(self, text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> None:
        """Appends text until the character limit is reached."""
        if self.characters_left <= 0:
            return
        said = clean_text(text, min(characters_max, self.characters_left))
        self.characters_left -= len(said)
        self.lines.append(said)


def tool_output(
    result: CallToolResult, *, server: str, tool: str, context: ToolContext
) -> ToolOutput:
    """Returns the text for the model and the pictures for the thread; `is_error` makes the output a failure."""
    reading = _Reading(server, tool, context)
    for part in result.content[:PARTS_MAX]:
        _read(part, reading)
    if len(result.content) > PARTS_MAX:
        reading.say(f"[{len(result.content) - PARTS_MAX} more parts are left out]")
    _read_structure(result.structured_content, reading)
    said = "\n".join(reading.lines)
    if not said:
        said = (
            "The tool failed and did not say why."
            if result.is_error
            else "Done; the tool returned nothing."
        )
    return ToolOutput(output=said, is_success=not result.is_error, messages=tuple(reading.images))


def _read(part: ContentBlock, reading: _Reading) -> None:
    match part:
        case TextContent():
            reading.say(part.text)
        case ImageContent():
            reading.say(_picture(part.data, part.mime_type, "picture", reading))
        case AudioContent():
            kind = clean_line(part.mime_type, 80)
            reading.say(f"[sound, {kind}, {_size(part.data)} bytes; it cannot be played here]")
        case ResourceLink():
            about = clean_line(part.description or part.title or part.name, 300)
            reading.say(f"[link to a resource: {clean_line(part.uri, 500)} ({about})]")
        case EmbeddedResource():
            _read_resource(part, reading)


def _read_resource(part: EmbeddedResource, reading: _Reading) -> None:
    resource = part.resource
    kind = clean_line(resource.mime_type or "unknown type", 80)
    uri = clean_line(resource.uri, 500)
    if not isinstance(resource, BlobResourceContents):
        reading.say(f"[resource {uri}, {kind}]")
        reading.say(resource.text, RESOURCE_CHARACTERS_MAX)
    elif kind.startswith("image/"):
        reading.say(_picture(resource.blob, kind, uri, reading))
    else:
        reading.say(f"[resource {uri}, {kind}, {_size(resource.blob)} bytes; not shown]")


def _picture(encoded: str, said_type: str, name: str, reading: _Reading) -> str:
    """Adds the picture to the output if it is valid. Returns the line that represents it in the text."""
    what = f"{name}, {clean_line(said_type, 80)}"
    if len(reading.images) >= IMAGES_MAX:
        return f"[{what}; left out: only {IMAGES_MAX} pictures are taken from one result]"
    if _size(encoded) > IMAGE_BYTES_MAX:
        return f"[{what}, {_size(encoded)} bytes; left out: over {IMAGE_BYTES_MAX} bytes]"
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}; left out: it is not valid base64]"
    mime_type = _kind_of_picture(content)
    if mime_type is None:
        return f"[{what}; left out: it is no PNG, JPEG, GIF or WebP]"
    reading.images.append(_image_message(content, mime_type, reading))
    return f"[{name}, {mime_type}, {len(content)} bytes: shown to you as an image]"


def _image_message(content: bytes, mime_type: str, reading: _Reading) -> Message:
    body: JsonObject = {
        "mime_type": mime_type,
        "base64": base64.b64encode(content).decode("ascii"),
        "file_path": f"mcp:{reading.server}/{clean_line(reading.tool, 100)}",
        "original_size": len(content),
        "compressed_size": len(content),
    }
    return Message(
        type="image_context",
        content=body,
        is_llm_message=False,
        thread_id=reading.context.thread_id,
        run_id=reading.context.run_id,
    )


def _kind_of_picture(content: bytes) -> str | None:
    """Returns the MIME type by the first bytes, or None, because the type that the server states is not trusted."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if content.startswith(start)), None)


def _size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _read_structure(structure: JsonValue, reading: _Reading) -> None:
    """Appends the structured content unless the text already repeats it, as the protocol advises servers to do."""
    if structure is None or _is_said(structure, "\n".join(reading.lines)):
        return
    reading.say(json.dumps(structure, ensure_ascii=False))


def _is_said(structure: JsonValue, said: str) -> bool:
    if (
        isinstance(structure, dict)
        and [*structure] == ["result"]
        and str(structure["result"]) == said
    ):
        return True  # servers wrap a plain value in an object with the key `result`
    if not said or len(said) > RESOURCE_CHARACTERS_MAX:
        return False
    try:
        return bool(json.loads(said) == structure)
    except (ValueError, RecursionError):
        return False
