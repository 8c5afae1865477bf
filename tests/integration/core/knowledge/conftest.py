"""A knowledge base over a fresh database, and a model that answers by a function."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from core.knowledge.document import Document, Page
from core.knowledge.knowledge_base import KnowledgeBase, RunKnowledge
from core.knowledge.ports import KnowledgeEntry, Scope
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledge
from tests.contracts.stores import ADDRESS, stores_over

AGENT = Scope("agent", "helper")


@dataclass
class Asked:
    """Answers each question by the function, and remembers the questions."""

    reply: Callable[[str], str]
    questions: list[str] = field(default_factory=list)

    async def __call__(self, question: str) -> str:
        self.questions.append(question)
        return self.reply(question)


@dataclass
class KnowledgeStage:
    """A library with a thread of its own."""

    knowledge_base: KnowledgeBase
    thread_id: str

    @property
    def thread(self) -> Scope:
        return Scope("thread", self.thread_id)

    def run_knowledge(self, reply: Callable[[str], str] | None = None) -> RunKnowledge:
        ask = Asked(reply) if reply else None
        return RunKnowledge(
            knowledge_base=self.knowledge_base, thread_id=self.thread_id, agent_id=AGENT.owner_id, ask=ask
        )

    async def put(self, scope: Scope, name: str, *pages: str) -> KnowledgeEntry:
        """A document of numbered pages."""
        document = Document(
            title="", kind="pdf", pages=tuple(Page(number, "", text) for number, text in enumerate(pages, start=1))
        )
        return await self.knowledge_base.store_document(
            scope, name, document, content_hash=f"{name}{hash(pages)}", size_bytes=1
        )


@pytest.fixture
async def stage(database: Database) -> KnowledgeStage:
    thread = await stores_over(database).conversations.create(ADDRESS)
    return KnowledgeStage(KnowledgeBase(store=SqlKnowledge(database)), thread.thread_id)
