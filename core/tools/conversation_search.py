"""Tools that search and show the earlier messages of the conversation."""

import asyncio

from pydantic import BaseModel, Field

from core.context.message_text import full_message_text
from core.context.tokens import first_tokens
from core.context.truncation import EXPAND_TOOL
from core.domain.call_consent import STAYS, Reach
from core.domain.errors import ToolError
from core.knowledge.knowledge_base import searchable_messages
from core.tools.tool import Tool, ToolContext


class SearchConversationParams(BaseModel):
    """Search this whole conversation, including what was shortened or summed up. Returns the best passages with
    message ids for expand_message."""

    query: str = Field(min_length=1, max_length=4000, description="A question or keywords.")


async def run_search_conversation(params: SearchConversationParams, context: ToolContext) -> str:
    if context.knowledge is None or context.messages is None:
        raise ToolError("This conversation cannot be searched. Use what you are shown of it.")
    found = await context.knowledge.search_messages(
        searchable_messages(await context.messages.read_all()), params.query
    )
    return found or "Nothing was said in this conversation before."


search_conversation = Tool(
    name="search_conversation",
    effect="reads",
    reach=STAYS,
    params=SearchConversationParams,
    run=run_search_conversation,
    title=lambda params: f"Looking back for {params.query}",
    example={"query": "Which colours did we agree on for the chart?"},
    is_idempotent=True,
    requires=("thread", "knowledge"),
)


class ReadChatParams(BaseModel):
    """Read further back in the chat thread, or fetch a file of one of its messages into /workspace/uploads."""

    before: str = Field(default="", max_length=64, description="`message` of the oldest one you know.")
    file: str = Field(default="", max_length=80, description="The id of the file.")


async def run_read_chat(params: ReadChatParams, context: ToolContext) -> str:
    chat = context.messages.chat if context.messages else None
    if chat is None:
        raise ToolError("This conversation is in no chat thread.")
    if bool(params.file) == bool(params.before):
        raise ToolError("Give either `before` or `file`.")
    return await (chat.fetch_file(params.file) if params.file else chat.read(params.before))


read_chat = Tool(
    name="read_chat",
    effect="writes",
    reach=Reach("none", brings=(("chat", ""),)),
    subject="files/uploads",
    params=ReadChatParams,
    run=run_read_chat,
    title=lambda params: "Fetching a file" if params.file else "Reading the thread",
    example={"before": "1767355200.000100"},
    is_idempotent=True,
    requires=("chat",),
)


MESSAGE_PAGE_CHARACTERS = 24_000
MESSAGE_PAGE_TOKENS = 7_000
"""The limits of a page, so that it fits into a tool result. In a longer result, the middle would be left out."""


class ExpandMessageParams(BaseModel):
    """Show a shortened message of this conversation whole, in pages if it is long."""

    message_id: str = Field(max_length=64, description="The id in the note.")
    page: int = Field(default=1, ge=1)


async def run_expand_message(params: ExpandMessageParams, context: ToolContext) -> str:
    message = await context.messages.find(params.message_id) if context.messages else None
    if message is None or not message.is_dialogue:
        raise ToolError(
            f"There is no message {params.message_id!r} in this conversation. Take the id from the note, to the letter."
        )
    pages = await asyncio.to_thread(_split_into_pages, full_message_text(message))
    if params.page > len(pages):
        raise ToolError(f"The message has {len(pages)} pages.")
    more = f"; page={params.page + 1} goes on" if params.page < len(pages) else ""
    return f"[page {params.page} of {len(pages)}{more}]\n{pages[params.page - 1]}"


def _split_into_pages(text: str) -> list[str]:
    pages, start = list[str](), 0
    while start < len(text) or not pages:
        page = first_tokens(text[start : start + MESSAGE_PAGE_CHARACTERS], MESSAGE_PAGE_TOKENS)
        pages.append(page)
        start += max(1, len(page))
    return pages


expand_message = Tool(
    name=EXPAND_TOOL,
    effect="reads",
    reach=STAYS,
    params=ExpandMessageParams,
    run=run_expand_message,
    title=lambda params: "Looking back in the conversation",
    example={"message_id": "019a3c1e-7d52-7a41-9f0e-2b6c8d4e5f60"},
    is_idempotent=True,
    requires=("thread",),
)
