"""Tools that search the knowledge base and the documents of the workspace."""

from pydantic import BaseModel, Field

from core.domain.call_consent import STAYS, Reach
from core.domain.errors import DocumentError, ToolError
from core.knowledge.knowledge_base import RunKnowledge
from core.tools.tool import Tool, ToolContext
from core.tools.workspace.paths import FilePathParams, add_path_to_error


class SearchKnowledgeParams(BaseModel):
    """Search the documents that people gave this agent and this conversation. Returns the best passages with file and
    page. Search before you say that you do not know."""

    query: str = Field(min_length=1, max_length=4000, description="A question or keywords.")


async def run_search_knowledge(params: SearchKnowledgeParams, context: ToolContext) -> str:
    found = await require_knowledge(context).search(params.query)
    return found or "The knowledge base is empty: no documents were added for this agent or thread."


class AskDocumentParams(FilePathParams):
    """Ask a question about one document of any length, read as by `read_file`. Returns an answer with page numbers."""

    question: str = Field(min_length=1, max_length=4000)


async def run_ask_document(params: AskDocumentParams, context: ToolContext) -> str:
    desk = require_knowledge(context)
    files = (await context.sandbox()).files
    try:
        answer = await desk.answer_from_file(params.file_path, files.read(params.file_path), params.question)
    except DocumentError as error:
        if error.detail.startswith("scanned"):
            raise ToolError(
                f"{params.file_path}: Its pages are pictures without text. read_file shows them to you."
            ) from error
        raise ToolError(f"{params.file_path}: {error}") from error
    except ToolError as error:
        raise add_path_to_error(params.file_path, error) from error
    return answer.text_for_model()


def require_knowledge(context: ToolContext) -> RunKnowledge:
    """Returns the knowledge base of the run. Raises ToolError if there is none."""
    if context.knowledge is None:
        raise ToolError("There is no knowledge base in this conversation.")
    return context.knowledge


search_knowledge = Tool(
    name="search_knowledge",
    effect="reads",
    reach=Reach("none", brings=(("document", ""),)),
    params=SearchKnowledgeParams,
    run=run_search_knowledge,
    title=lambda params: f"Search the knowledge base: {params.query}",
    example={"query": "How many days of holiday are there?"},
    is_idempotent=True,
    requires=("knowledge",),
)
ask_document = Tool(
    name="ask_document",
    effect="reads",
    reach=STAYS,
    params=AskDocumentParams,
    run=run_ask_document,
    title=lambda params: f"Read {params.file_path}: {params.question}",
    example={"file_path": "uploads/report.pdf", "question": "What was the revenue?"},
    is_idempotent=True,
    requires=("knowledge", "sandbox", "model"),
)
