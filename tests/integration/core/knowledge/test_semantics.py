"""Knowledge with a real endpoint for embeddings: found by meaning while it works, by words when it does not."""

import logging
from collections.abc import AsyncGenerator

import pytest

from core.knowledge.knowledge_base import KnowledgeBase, RunKnowledge
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.openai_client import OpenAIEmbeddingClient
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from tests.fakes.embeddings import EmbeddingsFake, Fault, embeddings_fake
from tests.integration.core.knowledge.conftest import KnowledgeStage
from tests.support.made_files import pieces

FILLER = "Plain words about nothing that anybody asks for at all. " * 30
CAT = "The cat sleeps on the printer."


@pytest.fixture
async def fake() -> AsyncGenerator[EmbeddingsFake, None]:
    async with embeddings_fake() as served:
        yield served


@pytest.fixture
async def meant(
    stage: KnowledgeStage, database: Database, fake: EmbeddingsFake
) -> AsyncGenerator[KnowledgeStage, None]:
    """A stage that knows a model of embeddings, which may be silent for half a second."""
    source = OpenAIEmbeddingClient(fake.base_url, fake.key)
    semantics = SemanticSearch(
        ModelEmbedder(source, "m"), SqlKnowledgeVectors(database), question_seconds=0.5, pause_seconds=0
    )
    yield KnowledgeStage(KnowledgeBase(store=SqlKnowledge(database), semantics=semantics), stage.thread_id)
    await source.close()


async def asked(knowledge: RunKnowledge) -> str:
    """A question that shares no word with the passage that answers it."""
    return await knowledge.search("feline automobile?", tokens_max=300)


async def test_a_question_finds_what_means_the_same(meant: KnowledgeStage, fake: EmbeddingsFake) -> None:
    await meant.put(meant.thread, "pets.pdf", *[FILLER] * 5, CAT, *[FILLER] * 5)

    assert CAT in await asked(meant.run_knowledge())
    assert all(one["model"] == "m" for one in fake.seen)


FAULTS: list[tuple[Fault, int, str]] = [
    ("status", 401, "401"),
    ("status", 429, "429"),
    ("slow", 0, "no answer within 0.5 s"),
    ("lengths", 0, "length 32"),
    ("garbage", 0, "not JSON"),
    ("cut", 0, "ServerDisconnectedError"),
]


@pytest.mark.parametrize(("fault", "status", "fact"), FAULTS)
async def test_where_the_model_fails_the_words_do_and_the_operator_is_told_once(
    meant: KnowledgeStage,
    stage: KnowledgeStage,
    fake: EmbeddingsFake,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    status: int,
    fact: str,
) -> None:
    await meant.put(meant.thread, "pets.pdf", *[FILLER] * 5, CAT, *[FILLER] * 5)
    fake.fault, fake.status, fake.message = fault, status, f"not with {fake.key}"
    with caplog.at_level(logging.WARNING):
        found = [await meant.run_knowledge().search("Where is the printer?", tokens_max=300) for _ in range(2)]

    assert CAT in found[0]
    plain = await stage.run_knowledge().search("Where is the printer?", tokens_max=300)
    assert CAT in plain
    assert len({text.split("mark=")[0] for text in (*found, plain)}) == 1
    (told,) = [one.getMessage() for one in caplog.records]
    assert told.startswith("the embedding model m fails, knowledge is searched by words alone: ")
    assert fact in told
    assert fake.key not in told


async def test_a_failing_model_is_left_alone_for_a_while(meant: KnowledgeStage, fake: EmbeddingsFake) -> None:
    before = await _broken_for_an_hour(meant, fake)
    for _ in range(3):
        await asked(meant.run_knowledge())

    assert len(fake.seen) == before + 1


async def test_an_entry_added_during_a_failure_gets_its_vectors_when_it_is_added_again(
    meant: KnowledgeStage, fake: EmbeddingsFake
) -> None:
    content = "\n\n".join([FILLER] * 5 + [CAT] + [FILLER] * 5).encode()
    fake.fault, fake.status = "status", 503
    entry = await meant.knowledge_base.add(meant.thread, "pets.txt", pieces(content))
    fake.fault = "none"
    assert CAT not in await asked(meant.run_knowledge())

    assert await meant.knowledge_base.add(meant.thread, "pets.txt", pieces(content)) == entry
    assert CAT in await asked(meant.run_knowledge())
    before = len(fake.seen)
    await meant.knowledge_base.add(meant.thread, "pets.txt", pieces(content))
    assert len(fake.seen) == before


async def _broken_for_an_hour(meant: KnowledgeStage, fake: EmbeddingsFake) -> int:
    """How often the model was called before it began to fail."""
    assert meant.knowledge_base.semantics is not None
    meant.knowledge_base.semantics.pause_seconds = 3600
    await meant.put(meant.thread, "pets.pdf", *[FILLER] * 5, CAT, *[FILLER] * 5)
    fake.fault = "garbage"
    return len(fake.seen)


async def test_after_a_recovery_the_next_failure_is_told_again(
    meant: KnowledgeStage, fake: EmbeddingsFake, caplog: pytest.LogCaptureFixture
) -> None:
    await meant.put(meant.thread, "pets.pdf", *[FILLER] * 5, CAT, *[FILLER] * 5)
    for fault in ("garbage", "none", "garbage"):
        fake.fault = fault
        await asked(meant.run_knowledge())

    assert len(caplog.records) == 2
