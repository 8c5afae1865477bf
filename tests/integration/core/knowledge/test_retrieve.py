"""Which passages a question gets: by words, and by meaning while an endpoint for embeddings works."""

import logging
from collections.abc import AsyncGenerator

import pytest

from core.domain.errors import ModelRejected
from core.knowledge.knowledge_base import KnowledgeBase, RunKnowledge
from core.knowledge.query_expansion import parse_keywords
from core.knowledge.retrieval import Passage, retrieve_passages
from core.knowledge.semantic_search import SemanticSearch
from core.llm.embeddings import ModelEmbedder
from core.llm.openai_client import OpenAIEmbeddingClient
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from tests.fakes.embeddings import EmbeddingsFake, Fault, embeddings_fake
from tests.integration.core.knowledge.conftest import AGENT, KnowledgeStage
from tests.support.made_files import pieces

PLAIN = "Plain words about nothing that anybody asks for at all. " * 30
FILLER = "Nothing of interest stands on this page, and much of it. " * 20


def seen(passages: tuple[Passage, ...]) -> list[tuple[str, int | None]]:
    return [(passage.entry.name, passage.chunk.page) for passage in passages]


async def test_the_front_of_a_single_document_is_always_there(stage: KnowledgeStage) -> None:
    pages = ["Annual report", "Contents", *[FILLER] * 20, "The walrus sleeps."]
    entry = await stage.put(AGENT, "a.pdf", *pages)
    passages = await retrieve_passages([entry], ["walrus"], store=stage.knowledge_base.store, tokens_max=1000)

    assert seen(passages) == [("a.pdf", 1), ("a.pdf", 2), ("a.pdf", 23)]


@pytest.mark.parametrize("question", ["", "?!", "zebra"])
async def test_without_a_hit_the_beginnings_are_taken_in_equal_shares(stage: KnowledgeStage, question: str) -> None:
    entries = [await stage.put(AGENT, name, *[FILLER] * 10) for name in ("a.pdf", "b.pdf")]
    passages = await retrieve_passages(entries, [question], store=stage.knowledge_base.store, tokens_max=1250)

    assert seen(passages) == [
        ("a.pdf", 1), ("a.pdf", 2), ("a.pdf", 3), ("b.pdf", 1), ("b.pdf", 2), ("b.pdf", 3)
    ]  # fmt: skip
    assert sum(passage.chunk.tokens for passage in passages) <= 1250
    assert 0 < len(passages[2].chunk.text) < len(passages[0].chunk.text)


ABSTRACT = (
    "主流的序列转换模型基于复杂的循环或卷积神经网络。",
    "我们提出了一种新的简单网络架构，完全基于注意力机制。",
    "在两个机器翻译任务上的实验表明，这些模型在质量上更优，同时更易于并行化，训练时间明显更少。",
    "我们的模型在八个图形处理器上训练 3.5 天后，取得了新的最好成绩。",
    "我们还证明它可以很好地推广到其他任务。",
)


@pytest.mark.parametrize("pages", [["".join(ABSTRACT)], list(ABSTRACT)], ids=["whole", "sentences"])
async def test_a_chinese_question_finds_its_sentence(stage: KnowledgeStage, pages: list[str]) -> None:
    entry = await stage.put(AGENT, "a.pdf", *pages)
    passages = await retrieve_passages(
        [entry], ["这个模型要训练多久？"], store=stage.knowledge_base.store, tokens_max=200
    )

    assert any("3.5 天" in passage.chunk.text for passage in passages)


class Letters:
    """An embedding of meaning: how often each letter is there."""

    model = "letters"

    async def embed(self, texts: list[str], **_: object) -> list[list[float]]:
        return [[text.count(letter) - 0.5 for letter in "abcdefgh"] for text in texts]


class Silent:
    model = "silent"

    async def embed(self, texts: list[str], **_: object) -> list[list[float]]:
        raise ModelRejected("no", detail="no key")


async def test_meaning_finds_what_words_do_not_and_its_absence_costs_nothing(
    stage: KnowledgeStage, database: object
) -> None:
    store = stage.knowledge_base.store
    vectors = SqlKnowledgeVectors(database)
    pages = [FILLER] * 10
    pages[6] = "hhhh hhh hhhhh"
    entry = await stage.put(AGENT, "a.pdf", *pages)
    texts = [chunk.text for chunk in await store.chunks(entry.entry_id)]
    await vectors.insert_missing(entry.entry_id, "letters", await Letters().embed(texts))
    other = await stage.put(AGENT, "b.pdf", FILLER)

    found = await retrieve_passages(
        [entry, other], ["hh zebra"], store=store, tokens_max=700, semantics=SemanticSearch(Letters(), vectors)
    )
    assert ("a.pdf", 7) in seen(found)
    plain = await retrieve_passages(
        [entry, other], ["hh zebra"], store=store, tokens_max=700,
        semantics=SemanticSearch(Silent(), vectors),
    )  # fmt: skip
    assert plain == await retrieve_passages([entry, other], ["hh zebra"], store=store, tokens_max=700)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"keywords_zh": ["训练"], "keywords_en": ["train", "train", " gpu "]}', ("训练", "train", "gpu")),
        ('Sure:\n```json\n{"keywords_en": ["a"]}\n``` and {more}', ("a",)),
        ('{"keywords_en": ["a", "b', ("a",)),
        ('{"keywords_en": "a", "keywords_zh": [1, null, ""]}', ()),
        ("I cannot do that.", ()),
        ("{", ()),
        ("[1]", ()),
    ],
)  # fmt: skip
def test_keywords_are_read_out_of_whatever_the_model_says(answer: str, words: tuple[str, ...]) -> None:
    assert parse_keywords(answer) == words


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
    await meant.put(meant.thread, "pets.pdf", *[PLAIN] * 5, CAT, *[PLAIN] * 5)

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
    await meant.put(meant.thread, "pets.pdf", *[PLAIN] * 5, CAT, *[PLAIN] * 5)
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
    content = "\n\n".join([PLAIN] * 5 + [CAT] + [PLAIN] * 5).encode()
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
    await meant.put(meant.thread, "pets.pdf", *[PLAIN] * 5, CAT, *[PLAIN] * 5)
    fake.fault = "garbage"
    return len(fake.seen)


async def test_after_a_recovery_the_next_failure_is_told_again(
    meant: KnowledgeStage, fake: EmbeddingsFake, caplog: pytest.LogCaptureFixture
) -> None:
    await meant.put(meant.thread, "pets.pdf", *[PLAIN] * 5, CAT, *[PLAIN] * 5)
    for fault in ("garbage", "none", "garbage"):
        fake.fault = fault
        await asked(meant.run_knowledge())

    assert len(caplog.records) == 2
