"""Looking at pictures."""

from pydantic import BaseModel, Field, field_validator

from core.context.untrusted_text import clean_line
from core.tools.images.pictures import image_context, is_web_address, picture_content
from core.tools.tool import Tool, ToolContext, ToolOutput
from core.tools.workspace.paths import relative
from core.web_access.pictures import prepare_for_model


class SeeParams(BaseModel):
    """Look at a picture (JPEG, PNG, GIF or WebP, up to 10 MB). You see it from the next turn on, until you look at
    another one: say what matters about it in words before that."""

    file_path: str = Field(
        min_length=1,
        max_length=4096,
        description="Path relative to /workspace, or the address of a picture on the web.",
    )

    @field_validator("file_path")
    @classmethod
    def _relative(cls, value: str) -> str:
        return value.strip() if is_web_address(value.strip()) else relative(value)


async def run_see(params: SeeParams, context: ToolContext) -> ToolOutput:
    content = await picture_content(params.file_path, context)
    picture = await prepare_for_model(content, name=params.file_path)
    message = image_context(
        picture, place=params.file_path, original_size=len(content), context=context
    )
    size = f"{picture.width} x {picture.height} pixels"
    return ToolOutput(
        output=f"{clean_line(params.file_path, 300)} is shown to you as an image ({size}).",
        messages=(message,),
    )


see_image = Tool(
    name="see_image",
    params=SeeParams,
    run=run_see,
    title=lambda params: f"Looking at {params.file_path}",
    example={"file_path": "charts/sales.png"},
    is_idempotent=True,
    timeout_seconds=180,
)
