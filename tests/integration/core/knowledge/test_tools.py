"""The tools that look things up."""

import pytest

from core.domain.errors import ToolError
from core.knowledge.knowledge_base import RunKnowledge
from core.ports import Sandbox
from core.tools.knowledge_search import ask_document, search_knowledge
from core.tools.tool import ToolContext, ToolSet, prepare_call
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fixtures.documents.make import FOLDER
from tests.integration.core.knowledge.conftest import KnowledgeStage
from tests.integration.core.knowledge.test_doc_qa import FACT, reader
from tests.support import made_files


def context(knowledge: RunKnowledge | None, sandbox: Sandbox | None = None) -> ToolContext:
    async def opened() -> Sandbox:
        assert sandbox is not None
        return sandbox

    return ToolContext(thread_id="t", run_id="r", sandbox=opened, knowledge=knowledge)


async def call(name: str, arguments: dict[str, str], within: ToolContext) -> str:
    tools = ToolSet({tool.name: tool for tool in (search_knowledge, ask_document)})
    prepared = prepare_call(name, arguments, tools)
    answer = await prepared.tool.run(prepared.params, within)
    assert isinstance(answer, str)
    return answer


async def test_a_search_answers_with_passages_and_their_page(stage: KnowledgeStage) -> None:
    await stage.put(stage.thread, "zoo.pdf", "Contents", FACT)
    found = await call("search_knowledge", {"query": "walrus"}, context(stage.run_knowledge()))

    assert f"[page 2]\n{FACT}" in found


async def test_a_document_of_the_workspace_is_asked(stage: KnowledgeStage) -> None:
    sandbox = await MemorySandboxes().open("t", fence=1)
    await sandbox.files.write("uploads/zoo.pdf", made_files.pieces(made_files.pdf(["Hello.", FACT])))
    asked = {"file_path": "/workspace/uploads/zoo.pdf", "question": "Where is the walrus?"}
    answer = await call("ask_document", asked, context(stage.run_knowledge(reader), sandbox))

    assert "Hall seven" in answer
    assert "Source: [file](uploads/zoo.pdf), page" in answer


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "missing.pdf"),
        (b"%PDF-x", "damaged"),
        ((FOLDER / "pdf-scanned.pdf").read_bytes(), "read_file shows them"),
    ],
    ids=["missing", "damaged", "scanned"],
)
async def test_a_file_that_cannot_be_read_is_told_to_the_model(
    stage: KnowledgeStage, content: bytes | None, problem: str
) -> None:
    sandbox = await MemorySandboxes().open("t", fence=1)
    if content is not None:
        await sandbox.files.write("missing.pdf", made_files.pieces(content))
    with pytest.raises(ToolError, match=problem):
        await call(
            "ask_document", {"file_path": "missing.pdf", "question": "?"}, context(stage.run_knowledge(reader), sandbox)
        )


async def test_without_a_desk_the_model_is_told(stage: KnowledgeStage) -> None:
    with pytest.raises(ToolError, match="no knowledge base"):
        await call("search_knowledge", {"query": "x"}, context(None))
