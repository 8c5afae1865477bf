"""Tools that show a picture to the model, and that generate or edit pictures."""

import base64
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from core.context.request_tail import PICTURES_MAX
from core.context.untrusted_text import clean_line
from core.domain.call_consent import STAYS, Reach, ReachKind
from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.domain.messages import Message
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.file_changes import in_one_piece
from core.tools.workspace.paths import add_path_to_error, validated_workspace_path, workspace_path
from core.web_access.download import DownloadLimits, download
from core.web_access.image_generation import GENERATED_BYTES_MAX
from core.web_access.pictures import IMAGE_BYTES_MAX, Picture, prepare_picture

_ACCEPT = "image/png,image/jpeg,image/webp,image/gif;q=0.9"
_LIMITS = DownloadLimits(bytes_max=IMAGE_BYTES_MAX)


def is_web_url(place: str) -> bool:
    """Returns whether the place of a picture or an attachment is a web address and not a workspace path."""
    return place.lower().startswith(("http://", "https://"))


async def load_picture(place: str, context: ToolContext) -> bytes:
    """Returns the bytes of a picture.

    `place` is a workspace path or a web address. Raises ToolError if it cannot be read.
    """
    if is_web_url(place):
        return (await download(place, context.outside.guard, accept=_ACCEPT, limits=_LIMITS)).content
    path = workspace_path(place)
    files = (await context.sandbox()).files
    try:
        return b"".join([piece async for piece in files.read(path, length=IMAGE_BYTES_MAX + 1)])
    except ToolError as error:
        raise add_path_to_error(path, error) from error


def build_picture_message(picture: Picture, *, place: str, original_size: int, thread_id: str, run_id: str) -> Message:
    """Builds the message that shows a picture to the model in its next requests, as long as it is one of the
    newest pictures that fit into a request."""
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
        thread_id=thread_id,
        run_id=run_id,
    )


def _reach(place: str, kind: ReachKind) -> Reach:
    """Returns the reach of a call that loads a picture. Loading a workspace file reaches nothing outside."""
    if is_web_url(place):
        return Reach(kind, (place,), brings=(("page", place),))
    return Reach("spends") if kind == "spends" else STAYS


def _validated_place(value: str) -> str:
    return value.strip() if is_web_url(value.strip()) else validated_workspace_path(value)


class SeeParams(BaseModel):
    """Look at a picture (JPEG, PNG, GIF or WebP, at most 10 MB). You see the newest pictures from the next turn on:
    say in words what matters about them."""

    file_path: str = Field(min_length=1, max_length=4096, description="Path relative to /workspace, or a web address.")

    _relative = field_validator("file_path")(_validated_place)


async def run_see(params: SeeParams, context: ToolContext) -> ToolOutput:
    content = await load_picture(params.file_path, context)
    picture = await prepare_picture(content, name=params.file_path)
    message = build_picture_message(
        picture, place=params.file_path, original_size=len(content), thread_id=context.thread_id, run_id=context.run_id
    )
    name = f"{clean_line(params.file_path, 300)} ({picture.width} x {picture.height} pixels)"
    return ToolOutput(
        output=f"{name} comes at the end of your next request, as far as the newest {PICTURES_MAX} pictures go.",
        messages=(message,),
    )


see_image = Tool(
    name="see_image",
    effect="reads",
    reach=lambda params: _reach(params.file_path, "reads_outside"),
    params=SeeParams,
    run=run_see,
    title=lambda params: f"Looking at {params.file_path}",
    example={"file_path": "charts/sales.png"},
    is_idempotent=True,
    timeout_seconds=180,
)


PICTURES_FOLDER = "images"
_ENDINGS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp"}


class DrawParams(BaseModel):
    """Draw a picture from a description, or change one. It is saved in the workspace, shown to you, and attached to
    your answer."""

    mode: Literal["generate", "edit"] = Field(description="edit changes the picture at image_path.")
    prompt: str = Field(min_length=1, max_length=8000, description="The whole picture and its style.")
    image_path: str | None = Field(
        default=None, max_length=4096, description="For edit: path relative to /workspace, or a web address."
    )

    @field_validator("image_path")
    @classmethod
    def _relative(cls, value: str | None) -> str | None:
        return _validated_place(value) if value and value.strip() else None

    @model_validator(mode="after")
    def _has_picture(self) -> "DrawParams":
        if self.mode == "edit" and self.image_path is None:
            raise ValueError("edit needs image_path, the picture to change")
        return self


async def run_draw(params: DrawParams, context: ToolContext) -> ToolOutput:
    image_generator = context.outside.image_generator
    if image_generator is None:
        raise ToolError("Pictures cannot be drawn here. Go on without them.")
    given = None
    if params.mode == "edit" and params.image_path is not None:
        edited = await load_picture(params.image_path, context)
        given = await prepare_picture(edited, name=params.image_path)
    await context.budget.check()
    content = await image_generator.draw(params.prompt, given, spent=context.budget.spent)
    try:
        picture = await prepare_picture(content, name="The picture", bytes_max=GENERATED_BYTES_MAX)
    except ToolError as error:
        raise ToolError(f"The model of pictures made none that can be used. {error}") from error
    ending = next((kind for start, kind in _ENDINGS.items() if content.startswith(start)), "png")
    path = f"{PICTURES_FOLDER}/picture_{new_id()[-12:]}.{ending}"
    try:
        await (await context.sandbox()).files.write(path, in_one_piece(content))
    except ToolError as error:
        raise add_path_to_error(path, error) from error
    message = build_picture_message(
        picture, place=path, original_size=len(content), thread_id=context.thread_id, run_id=context.run_id
    )
    return ToolOutput(
        output={
            "file_path": path,
            "message": f"The picture is in {path}, and comes at the end of your next request."
            " People get it with your answer.",
        },
        messages=(message,),
    )


image_edit_or_generate = Tool(
    name="image_edit_or_generate",
    effect="writes",
    reach=lambda params: _reach(params.image_path or "", "spends"),
    params=DrawParams,
    run=run_draw,
    title=lambda params: f"{'Drawing' if params.mode == 'generate' else 'Editing'} a picture: {params.prompt}",
    example={"mode": "generate", "prompt": "A lighthouse at dusk, in water colours"},
    timeout_seconds=420,
    requires=("sandbox", "image_model"),
)
