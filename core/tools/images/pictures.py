"""Getting pictures for tools, and putting one before the model's eyes."""

import base64

from core.domain.errors import ToolError
from core.domain.messages import Message
from core.tools.tool import ToolContext
from core.tools.workspace.paths import about, inside_workspace
from core.web_access.fetch import FetchLimits, fetch
from core.web_access.pictures import IMAGE_BYTES_MAX, Picture

_ACCEPT = "image/png,image/jpeg,image/webp,image/gif;q=0.9"
_LIMITS = FetchLimits(bytes_max=IMAGE_BYTES_MAX)


def is_web_address(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


async def picture_content(place: str, context: ToolContext) -> bytes:
    """The bytes of a picture of the workspace or the web. Raises ToolError."""
    if is_web_address(place):
        return (await fetch(place, context.outside.guard, accept=_ACCEPT, limits=_LIMITS)).content
    path = inside_workspace(place)
    files = (await context.sandbox()).files
    content = bytearray()
    try:
        async for piece in files.read(path, length=IMAGE_BYTES_MAX + 1):
            content += piece
    except ToolError as error:
        raise about(path, error) from error
    return bytes(content)


def image_context(
    picture: Picture, *, place: str, original_size: int, context: ToolContext
) -> Message:
    """The message that goes along with the next calls of the model, until another picture takes its place."""
    return Message(
        type="image_context",
        content={
            "mime_type": picture.mime_type,
            "base64": base64.b64encode(picture.content).decode("ascii"),
            "file_path": place,
            "original_size": original_size,
            "compressed_size": len(picture.content),
        },
        is_llm_message=False,
        thread_id=context.thread_id,
        run_id=context.run_id,
    )
