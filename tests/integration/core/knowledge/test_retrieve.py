"""Which passages a question gets."""

import pytest

from core.domain.errors import ModelRejected
from core.knowledge.query_expansion import parse_keywords
from core.knowledge.retrieval import Passage, retrieve_passages
from core.knowledge.semantic_search import SemanticSearch
from storage.sql.stores.knowledge import SqlKnowledgeVectors
from tests.integration.core.knowledge.conftest import AGENT, KnowledgeStage

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
