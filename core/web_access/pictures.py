"""Converts untrusted pictures for a model: checks, rotates and shrinks them, and removes metadata."""

import logging
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from core.domain.errors import DocumentError, ToolError
from core.knowledge.document import ParseLimits
from core.knowledge.parsing.parser_process import run_in_child

log = logging.getLogger(__name__)

IMAGE_BYTES_MAX = 10_000_000
"""Size limit for a picture before conversion."""
SHOWN_BYTES_MAX = 3_750_000
"""Size limit for a converted picture: five million characters as base64, the limit of the strictest provider."""
SIDE_PIXELS_MAX = 1920
_LIMITS = ParseLimits(memory_bytes_max=1_500_000_000, cpu_seconds_max=20, wall_seconds_max=60)
_SENTENCES = {
    "pixels": "has too many pixels to be looked at; make it smaller with a program first",
    "memory": "takes more memory than a picture may; make it smaller with a program first",
    "broken": "is no PNG, JPEG, GIF, WebP or HEIC, or is damaged; convert it with a program first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A converted picture. `content` is PNG or JPEG."""

    content: bytes
    mime_type: str
    width: int
    height: int


class _Head(BaseModel):
    error: str = ""
    mime_type: Literal["image/png", "image/jpeg"] = "image/png"
    width: int = Field(default=0, ge=0, le=SIDE_PIXELS_MAX)
    height: int = Field(default=0, ge=0, le=SIDE_PIXELS_MAX)


async def prepare_picture(content: bytes, *, name: str, bytes_max: int = IMAGE_BYTES_MAX) -> Picture:
    """Converts a picture for a model. Raises ToolError with the picture's `name` in its message."""
    if len(content) > bytes_max:
        raise ToolError(f"{name} is larger than {bytes_max // 1_000_000} MB; make it smaller with a program first.")
    arguments: dict[str, object] = {"kind": "picture", "side_max": SIDE_PIXELS_MAX, "bytes_max": SHOWN_BYTES_MAX}
    try:
        output = await run_in_child(
            "core.web_access.page_and_picture_child", arguments, content, _LIMITS, bytes_max=SHOWN_BYTES_MAX + 1000
        )
        line, _, made = output.partition(b"\n")
        head = _Head.model_validate_json(line)
    except (DocumentError, ValidationError) as error:
        log.warning("a picture cannot be looked at: %s", error)
        raise ToolError(f"{name} {_SENTENCES['broken']}.") from error
    if head.error or not made:
        raise ToolError(f"{name} {_SENTENCES.get(head.error, _SENTENCES['broken'])}.")
    return Picture(content=made, mime_type=head.mime_type, width=head.width, height=head.height)
