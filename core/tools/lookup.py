"""Tools that search the knowledge base, workspace documents and earlier messages of the conversation."""

from pydantic import BaseModel, Field

from core.context.message_text import full_message_text
from core.context.truncation import EXPAND_TOOL
from core.domain.errors import DocumentError, ToolError
from core.knowledge.knowledge_base import RunKnowledge, messages_before_request
from core.tools.tool import Tool, ToolContext
from core.tools.workspace.paths import FilePathParams, with_path_in_error


class SearchKnowledgeParams(BaseModel):
    """Search the knowledge base: the documents that people gave this agent and this conversation. Returns the passages
    that fit best, each with its file and page. Search before you say that you do not know."""

    query: str = Field(
        min_length=1,
        max_length=4000,
        description="What you want to know, as a full question or as keywords.",
    )


async def run_search_knowledge(params: SearchKnowledgeParams, context: ToolContext) -> str:
    found = await _run_knowledge(context).search(params.query)
    return found or "The knowledge base is empty: no documents were added for this agent or thread."


class AskDocumentParams(FilePathParams):
    """Ask a question about one document of the workspace, however long: PDF, Word, PowerPoint, Excel, CSV, HTML,
    Markdown or text. It is read part by part; the answer names the pages it rests on."""

    question: str = Field(min_length=1, max_length=4000, description="The question, in full.")


async def run_ask_document(params: AskDocumentParams, context: ToolContext) -> str:
    desk = _run_knowledge(context)
    files = (await context.sandbox()).files
    try:
        answer = await desk.answer(params.file_path, files.read(params.file_path), params.question)
    except DocumentError as error:
        raise ToolError(f"{params.file_path}: {error}") from error
    except ToolError as error:
        raise with_path_in_error(params.file_path, error) from error
    return answer.told()


def _run_knowledge(context: ToolContext) -> RunKnowledge:
    if context.knowledge is None:
        raise ToolError("There is no knowledge base in this conversation.")
    return context.knowledge


search_knowledge = Tool(
    name="search_knowledge",
    params=SearchKnowledgeParams,
    run=run_search_knowledge,
    title=lambda params: f"Search the knowledge base: {params.query}",
    example={"query": "How many days of holiday are there?"},
    is_idempotent=True,
    requires=("knowledge",),
)
ask_document = Tool(
    name="ask_document",
    params=AskDocumentParams,
    run=run_ask_document,
    title=lambda params: f"Read {params.file_path}: {params.question}",
    example={"file_path": "uploads/report.pdf", "question": "What was the revenue?"},
    is_idempotent=True,
    requires=("knowledge", "sandbox"),
)


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


MESSAGE_PAGE_CHARACTERS = 30_000


class ExpandMessageParams(BaseModel):
    """Show a message of this conversation as it was, when a note says that some of it is left out here. Long
    ones come in pages."""

    message_id: str = Field(max_length=64, description="The id that the note names.")
    page: int = Field(default=1, ge=1, description="Which page, counted from 1.")


async def run_expand_message(params: ExpandMessageParams, context: ToolContext) -> str:
    message = await context.messages.find(params.message_id) if context.messages else None
    if message is None or not message.is_llm_message:
        raise ToolError(
            f"There is no message {params.message_id!r} in this conversation. Take the id from the note, to the letter."
        )
    text = full_message_text(message)
    pages = max(1, -(-len(text) // MESSAGE_PAGE_CHARACTERS))
    if params.page > pages:
        raise ToolError(f"The message has {pages} pages.")
    start = (params.page - 1) * MESSAGE_PAGE_CHARACTERS
    more = f"; page={params.page + 1} goes on" if params.page < pages else ""
    return f"[page {params.page} of {pages}{more}]\n{text[start : start + MESSAGE_PAGE_CHARACTERS]}"


expand_message = Tool(
    name=EXPAND_TOOL,
    params=ExpandMessageParams,
    run=run_expand_message,
    title=lambda params: "Looking back in the conversation",
    example={"message_id": "019a3c1e-7d52-7a41-9f0e-2b6c8d4e5f60"},
    is_idempotent=True,
)
