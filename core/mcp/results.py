"""Converts results of MCP tools (text, data, pictures and resources) to tool outputs, within limits."""

import asyncio
import base64
import json
import mimetypes
import re
from collections.abc import Sequence
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
    TextResourceContents,
)
from pydantic import JsonValue

from core.context.untrusted_text import clean_line, clean_text
from core.domain.errors import RunError, ToolError
from core.domain.ids import new_id
from core.domain.messages import Message
from core.loop.calls import RESULTS_FOLDER
from core.tools.pictures import build_picture_message
from core.tools.tool import ToolContext, ToolOutput
from core.tools.workspace.file_changes import in_one_piece
from core.web_access.pictures import prepare_picture

Part = ContentBlock | TextResourceContents | BlobResourceContents | str
TEXT_CHARACTERS_MAX = 200_000
BASE64_CHARACTERS_SHOWN_MAX = 1_000
"""Longer base64 in structured content is left out, because a model cannot read it."""

FILES_MAX = 10
SAVE_SECONDS = 60.0
PARTS_MAX = 200
IMAGES_MAX = 4


@dataclass(slots=True)
class _Reading:
    server: str
    tool: str
    context: ToolContext
    lines: list[str] = field(default_factory=list[str])
    images: list[Message] = field(default_factory=list[Message])
    characters_left: int = TEXT_CHARACTERS_MAX
    left_out: int = 0
    files_saved: int = 0
    pictures_read: int = 0

    def say(self, text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> None:
        """Appends text until the character limit is reached, and counts what comes after it."""
        if self.characters_left <= 0:
            self.left_out += 1
            return
        said = clean_text(text, min(characters_max, self.characters_left))
        self.characters_left -= len(said)
        self.lines.append(said)

    def text(self) -> str:
        note = f"[{self.left_out} more parts are left out: the result is too long]"
        return "\n".join([*self.lines, note] if self.left_out else self.lines)


async def convert_result(result: CallToolResult, *, server: str, tool: str, context: ToolContext) -> ToolOutput:
    """Converts the result to text for the model and pictures for the thread. Keeps whether the call failed."""
    reading = await _read_parts(result.content, _Reading(server, tool, context))
    await asyncio.to_thread(_read_structure, result.structured_content, reading)
    said = reading.text()
    if not said:
        said = "The tool failed and did not say why." if result.is_error else "Done; the tool returned nothing."
    return ToolOutput(output=said, is_success=not result.is_error, messages=tuple(reading.images))


async def convert_parts(parts: Sequence[Part], *, server: str, tool: str, context: ToolContext) -> ToolOutput:
    """Converts the parts of a resource or prompt in the same way as `convert_result`."""
    reading = await _read_parts(parts, _Reading(server, tool, context))
    return ToolOutput(output=reading.text() or "It is empty.", messages=tuple(reading.images))


async def _read_parts(parts: Sequence[Part], reading: _Reading) -> _Reading:
    for part in parts[:PARTS_MAX]:
        match part:
            case str():
                reading.say(part)
            case TextResourceContents() | BlobResourceContents():
                await _read_resource(part, reading)
            case TextContent():
                reading.say(part.text)
            case ImageContent():
                await _add_picture(part.data, part.mime_type, "picture", reading)
            case AudioContent():
                await _save_file(part.data, part.mime_type, "sound", reading)
            case ResourceLink():
                about = clean_line(part.description or part.title or part.name, 300)
                reading.say(f"[link to a resource: {clean_line(part.uri, 500)} ({about})]")
            case EmbeddedResource():
                await _read_resource(part.resource, reading)
    if len(parts) > PARTS_MAX:
        reading.say(f"[{len(parts) - PARTS_MAX} more parts are left out]")
    return reading


async def _read_resource(resource: TextResourceContents | BlobResourceContents, reading: _Reading) -> None:
    """Adds a resource to the output: its text, a picture, or the name of the file that it was saved to."""
    kind = clean_line(resource.mime_type or "unknown type", 80)
    uri = clean_line(resource.uri, 500)
    if not isinstance(resource, BlobResourceContents):
        reading.say(f"[resource {uri}, {kind}]")
        reading.say(resource.text)
    elif kind.startswith("image/"):
        await _add_picture(resource.blob, kind, uri, reading)
    else:
        await _save_file(resource.blob, kind, f"resource {uri}", reading)


async def _save_file(encoded: str, said_type: str, what: str, reading: _Reading) -> None:
    """Saves a part as a file of the workspace, and adds a line with the path to the output."""
    kind = clean_line(said_type, 80)
    about = f"{what}, {kind}, {_size(encoded)} bytes"
    if reading.files_saved >= FILES_MAX:
        reading.say(f"[{about}; left out: only {FILES_MAX} files are saved from one result]")
        return
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", what.rsplit("/", 1)[-1])[-60:].strip(".-") or "file"
    ending = "" if "." in name else mimetypes.guess_extension(kind) or ""
    path = f"{RESULTS_FOLDER}/{new_id()[-12:]}-{name}{ending}"
    try:
        content = decode_base64(encoded)
        async with asyncio.timeout(SAVE_SECONDS):
            await (await reading.context.sandbox()).files.write(path, in_one_piece(content))
    except ValueError:
        reading.say(f"[{about}; left out: it is not valid base64]")
    except (RunError, ToolError, TimeoutError) as error:
        reading.say(f"[{about}; not saved: {clean_line(str(error), 200) or 'it took too long'}]")
    else:
        reading.files_saved += 1
        reading.say(f"[{about}: saved as {path}]")


def decode_base64(encoded: str) -> bytes:
    """Decodes base64 in every spelling that servers use: in lines, as a data URL, URL-safe, without padding.

    Raises ValueError if it is no base64."""
    if encoded[:5].lower() == "data:":
        encoded = encoded.partition(",")[2]
    plain = "".join(encoded.split()).rstrip("=").translate(_URL_SAFE)
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


async def _add_picture(encoded: str, said_type: str, name: str, reading: _Reading) -> None:
    """Adds the picture to the output, as the model may see it, and to the text a line about it."""
    what, context = f"{name}, {clean_line(said_type, 80)}", reading.context
    if reading.pictures_read >= IMAGES_MAX:
        reading.say(f"[{what}; left out: only {IMAGES_MAX} pictures are taken from one result]")
        return
    reading.pictures_read += 1
    # a request shows only the newest picture of one path
    place = f"mcp:{reading.server}/{clean_line(reading.tool, 100)}/{new_id()[-8:]}"
    try:
        content = await asyncio.to_thread(decode_base64, encoded)
        picture = await prepare_picture(content, name="it")
    except ValueError:
        reading.say(f"[{what}; left out: it is not valid base64]")
    except ToolError as error:
        reading.say(f"[{what}; left out: {error}]")
    else:
        message = build_picture_message(
            picture, place=place, original_size=len(content), thread_id=context.thread_id, run_id=context.run_id
        )
        reading.images.append(message)
        reading.say(f"[{name}, {picture.mime_type}, {len(content)} bytes: shown to you as an image]")


def _size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _read_structure(structure: JsonValue, reading: _Reading) -> None:
    """Appends the structured content unless the text already repeats it, as the protocol advises servers to do."""
    if structure is None or _is_said(structure, "\n".join(reading.lines)):
        return
    reading.say(json.dumps(_without_base64(structure), ensure_ascii=False))


def _without_base64(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _without_base64(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_base64(one) for one in value]
    if not isinstance(value, str) or len(value) <= BASE64_CHARACTERS_SHOWN_MAX:
        return value
    if _BASE64.fullmatch(value):
        return f"[{_size(value)} bytes of base64 are left out]"
    return value


_URL_SAFE = str.maketrans("-_", "+/")
_BASE64 = re.compile(r"(?:data:[\w/.+-]{1,80};base64,)?[A-Za-z0-9+/_-]+={0,2}")


def _is_said(structure: JsonValue, said: str) -> bool:
    """Returns whether the text is the structure as JSON, or the only value in it: servers wrap a plain value in an
    object with a single key, such as `result` or `content`."""
    if isinstance(structure, dict) and len(structure) == 1:
        (value,) = structure.values()
        if clean_text(str(value), TEXT_CHARACTERS_MAX) == said:
            return True
    if not said:
        return False
    try:
        return bool(json.loads(said) == structure)
    except (ValueError, RecursionError):
        return False
