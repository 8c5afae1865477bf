"""Looking things up: in the knowledge of the agent and the thread, and in a document of the workspace."""

from pydantic import BaseModel, Field

from core.domain.errors import DocumentError, ToolError
from core.knowledge.knowledge_base import RunKnowledge
from core.tools.tool import Tool, ToolContext
from core.tools.workspace.paths import WithPath, about


class SearchParams(BaseModel):
    """Search the knowledge base: the documents that people gave this agent and this conversation. Returns the passages
    that fit best, each with its file and page. Search before you say that you do not know."""

    query: str = Field(
        min_length=1,
        max_length=4000,
        description="What you want to know, as a full question or as keywords.",
    )


async def run_search(params: SearchParams, context: ToolContext) -> str:
    found = await _run_knowledge(context).search(params.query)
    return found or "The knowledge base is empty: no documents were added for this agent or thread."


class AskParams(WithPath):
    """Ask a question about one document of the workspace, however long: PDF, Word, PowerPoint, Excel, CSV, HTML,
    Markdown or text. It is read part by part; the answer names the pages it rests on."""

    question: str = Field(min_length=1, max_length=4000, description="The question, in full.")


async def run_ask(params: AskParams, context: ToolContext) -> str:
    desk = _run_knowledge(context)
    files = (await context.sandbox()).files
    try:
        answer = await desk.answer(params.file_path, files.read(params.file_path), params.question)
    except DocumentError as error:
        raise ToolError(f"{params.file_path}: {error}") from error
    except ToolError as error:
        raise about(params.file_path, error) from error
    return answer.told()


def _run_knowledge(context: ToolContext) -> RunKnowledge:
    if context.knowledge is None:
        raise ToolError("There is no knowledge base in this conversation.")
    return context.knowledge


search_knowledge = Tool(
    name="search_knowledge",
    params=SearchParams,
    run=run_search,
    title=lambda params: f"Search the knowledge base: {params.query}",
    example={"query": "How many days of holiday are there?"},
    is_idempotent=True,
    requires=("knowledge",),
)
ask_document = Tool(
    name="ask_document",
    params=AskParams,
    run=run_ask,
    title=lambda params: f"Read {params.file_path}: {params.question}",
    example={"file_path": "uploads/report.pdf", "question": "What was the revenue?"},
    is_idempotent=True,
    requires=("knowledge", "sandbox"),
)
