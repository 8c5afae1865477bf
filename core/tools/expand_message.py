"""Reading a message of the conversation whole that was shortened or summed up."""

from pydantic import BaseModel, Field

from core.context.message_text import full_message_text
from core.context.truncation import EXPAND_TOOL
from core.domain.errors import ToolError
from core.tools.tool import Tool, ToolContext

PAGE_CHARACTERS = 30_000


class ExpandParams(BaseModel):
    """Show a message of this conversation as it was, when a note says that some of it is left out here. Long
    ones come in pages."""

    message_id: str = Field(max_length=64, description="The id that the note names.")
    page: int = Field(default=1, ge=1, description="Which page, counted from 1.")


async def run_expand(params: ExpandParams, context: ToolContext) -> str:
    message = await context.messages.find(params.message_id) if context.messages else None
    if message is None or not message.is_llm_message:
        raise ToolError(
            f"There is no message {params.message_id!r} in this conversation. Take the id from the note, to the letter."
        )
    text = full_message_text(message)
    pages = max(1, -(-len(text) // PAGE_CHARACTERS))
    if params.page > pages:
        raise ToolError(f"The message has {pages} pages.")
    start = (params.page - 1) * PAGE_CHARACTERS
    more = f"; page={params.page + 1} goes on" if params.page < pages else ""
    return f"[page {params.page} of {pages}{more}]\n{text[start : start + PAGE_CHARACTERS]}"


expand_message = Tool(
    name=EXPAND_TOOL,
    params=ExpandParams,
    run=run_expand,
    title=lambda params: "Looking back in the conversation",
    example={"message_id": "019a3c1e-7d52-7a41-9f0e-2b6c8d4e5f60"},
    is_idempotent=True,
)
