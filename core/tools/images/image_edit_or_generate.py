"""Drawing and editing pictures. What is made lies in the workspace, and people get it with the answer."""

from collections.abc import AsyncIterator
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.tools.images.pictures import image_context, is_web_address, picture_content
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import about, relative
from core.web_access.image_generation import GENERATED_BYTES_MAX
from core.web_access.pictures import Picture, prepare_for_model

FOLDER = "images"
_ENDINGS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp"}


class DrawParams(BaseModel):
    """Draw a picture from words, or change one. The result is saved in the workspace, shown to you, and handed to the
    people with your answer. Describe the whole picture that you want, also when you change one."""

    mode: Literal["generate", "edit"] = Field(
        description="generate draws a new picture; edit changes the one at image_path."
    )
    prompt: str = Field(
        min_length=1,
        max_length=8000,
        description="What the picture should show, and in which style.",
    )
    image_path: str | None = Field(
        default=None,
        max_length=4096,
        description="For edit: path relative to /workspace, or the address of a picture on the web.",
    )

    @field_validator("image_path")
    @classmethod
    def _relative(cls, value: str | None) -> str | None:
        if value is None or not value.strip():
            return None
        return value.strip() if is_web_address(value.strip()) else relative(value)

    @model_validator(mode="after")
    def _has_picture(self) -> "DrawParams":
        if self.mode == "edit" and self.image_path is None:
            raise ValueError("edit needs image_path, the picture to change")
        return self


async def run_draw(params: DrawParams, context: ToolContext) -> ToolOutput:
    image_generator = context.outside.image_generator
    if image_generator is None:
        raise ToolError("Pictures cannot be drawn here. Go on without them.")
    given = await _given(params, context)
    content = await image_generator.draw(params.prompt, given, spent=context.spent)
    picture = await _seen(content)
    path = f"{FOLDER}/picture_{new_id()[-12:]}.{_ending(content)}"
    await _save(path, content, context)
    message = image_context(picture, place=path, original_size=len(content), context=context)
    return ToolOutput(
        output={
            "file_path": path,
            "message": f"The picture is in {path} and shown to you as an image. People get it with your answer.",
        },
        messages=(message,),
    )


async def _given(params: DrawParams, context: ToolContext) -> Picture | None:
    """The picture to change, within bounds."""
    if params.mode == "generate" or params.image_path is None:
        return None
    content = await picture_content(params.image_path, context)
    return await prepare_for_model(content, name=params.image_path)


async def _seen(content: bytes) -> Picture:
    try:
        return await prepare_for_model(content, name="The picture", bytes_max=GENERATED_BYTES_MAX)
    except ToolError as error:
        raise ToolError(f"The model of pictures made none that can be used. {error}") from error


def _ending(content: bytes) -> str:
    return next((kind for start, kind in _ENDINGS.items() if content.startswith(start)), "png")


async def _save(path: str, content: bytes, context: ToolContext) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    try:
        await (await context.sandbox()).files.write(path, pieces())
    except ToolError as error:
        raise about(path, error) from error


image_edit_or_generate = Tool(
    name="image_edit_or_generate",
    params=DrawParams,
    run=run_draw,
    title=lambda params: (
        f"{'Drawing' if params.mode == 'generate' else 'Editing'} a picture: {params.prompt}"
    ),
    example={"mode": "generate", "prompt": "A lighthouse at dusk, in water colours"},
    timeout_seconds=420,
    requires=("sandbox", "image_model"),
)
