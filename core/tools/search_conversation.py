"""Finding what was said long ago in the thread, however long it is."""

from pydantic import BaseModel, Field

from core.domain.errors import ToolError
from core.knowledge.knowledge_base import messages_before_request
from core.tools.tool import Tool, ToolContext


class SearchConversationParams(BaseModel):
    """Search everything that was said and done earlier in this conversation, also what you are no longer shown or only
    see summed up. Returns the passages that fit best, each with the id of its message for expand_message."""

    query: str = Field(
        min_length=1,
        max_length=4000,
        description="What you want to know, as a full question or as keywords.",
    )


async def run_search_conversation(params: SearchConversationParams, context: ToolContext) -> str:
    if context.knowledge is None or context.messages is None:
        raise ToolError("This conversation cannot be searched. Use what you are shown of it.")
    found = await context.knowledge.recall(
        messages_before_request(await context.messages.read_all()), params.query
    )
    return found or "Nothing was said in this conversation before the present request."


search_conversation = Tool(
    name="search_conversation",
    params=SearchConversationParams,
    run=run_search_conversation,
    title=lambda params: f"Looking back for {params.query}",
    example={"query": "Which colours did we agree on for the chart?"},
    is_idempotent=True,
    requires=("knowledge",),
)
