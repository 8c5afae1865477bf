"""What every store of knowledge does, on each database."""

import asyncio
import math
import random
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from core.domain.errors import ToolError
from core.knowledge.chunk import Chunk
from core.knowledge.ports import EntryDraft, KnowledgeEntry, Scope
from core.knowledge.terms import query_terms
from storage.sql.database import Database
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from storage.sql.tables import knowledge_entries
from tests.contracts.stores import ADDRESS, TEST, Stores

AGENT = Scope("agent", "agent-1")


@pytest.fixture
def knowledge(database: Database) -> SqlKnowledge:
    return SqlKnowledge(database)


@pytest.fixture
def vectors(database: Database) -> SqlKnowledgeVectors:
    return SqlKnowledgeVectors(database)


def draft(name: str = "a.txt", content: str = "1") -> EntryDraft:
    return EntryDraft(name=name, kind="txt", title="", content_hash=content, size_bytes=3)


def cut(*texts: str) -> list[Chunk]:
    return [Chunk(number=at, page=at + 1, place="", text=text, tokens=10) for at, text in enumerate(texts)]


async def found(knowledge: SqlKnowledge, query: str, *entries: KnowledgeEntry) -> list[str]:
    ids = [entry.entry_id for entry in entries]
    hits = await knowledge.search(query_terms(query), ids, limit=10)
    return [hit.chunk.text for hit in hits]


async def test_an_entry_is_read_back_as_it_was_added(knowledge: SqlKnowledge) -> None:
    whole = [
        Chunk(number=0, page=None, place="Head", text="one\ntwo", tokens=3),
        Chunk(number=1, page=7, place="", text="two\nthree", tokens=4, overlap=3),
    ]
    entry = await knowledge.add(AGENT, draft(), whole)
    assert (entry.name, entry.tokens, entry.chunk_count, entry.scope) == ("a.txt", 7, 2, AGENT)
    assert await knowledge.entries([AGENT]) == (entry,)
    assert await knowledge.chunks(entry.entry_id) == tuple(whole)
    assert await knowledge.chunks(entry.entry_id, limit=1) == (whole[0],)


async def test_the_same_content_again_is_the_same_entry(knowledge: SqlKnowledge) -> None:
    first = await knowledge.add(AGENT, draft(), cut("words"))
    unread = iter(cut("words"))
    assert await knowledge.add(AGENT, draft(name="b.txt"), unread) == first
    assert next(unread, None)
    assert await knowledge.entries([AGENT]) == (first,)


async def test_the_same_content_added_many_times_at_once_is_one_entry(knowledge: SqlKnowledge, stores: Stores) -> None:
    added = await asyncio.gather(*(knowledge.add(AGENT, draft(), cut("words")) for _ in range(6)))
    assert len({entry.entry_id for entry in added}) == 1
    assert len(await knowledge.entries([AGENT])) == await stores.count("knowledge_entry") == 1
    assert await found(knowledge, "words", *added) == ["words"]


async def test_a_renamed_entry_replaces_the_others_of_that_name_in_its_scope(knowledge: SqlKnowledge) -> None:
    other = Scope("agent", "other")
    kept = await knowledge.add(AGENT, draft(name="a", content="1"), cut("kept words"))
    old = await knowledge.add(AGENT, draft(name="b", content="2"), cut("old words"))
    theirs = await knowledge.add(other, draft(name="b", content="3"), cut("their words"))
    for _ in range(2):
        await knowledge.rename(AGENT, kept.entry_id, "b")
    await knowledge.rename(AGENT, theirs.entry_id, "b")
    await knowledge.rename(AGENT, "unknown", "b")
    assert [(one.entry_id, one.name) for one in await knowledge.entries([AGENT])] == [(kept.entry_id, "b")]
    assert await knowledge.entries([other]) == (theirs,)
    assert await found(knowledge, "words", kept, old) == ["kept words"]


async def test_of_entries_that_are_renamed_at_once_one_has_the_name(knowledge: SqlKnowledge) -> None:
    for at in range(5):
        entries = [await knowledge.add(AGENT, draft(name=f"{n}", content=f"{at} {n}"), cut("words")) for n in range(4)]
        await asyncio.gather(*(knowledge.rename(AGENT, one.entry_id, "same") for one in entries))
        assert [one.name for one in await knowledge.entries([AGENT])] == ["same"]


async def test_scopes_do_not_see_each_other(knowledge: SqlKnowledge, stores: Stores) -> None:
    thread = await stores.conversations.create(ADDRESS)
    other = Scope("thread", thread.thread_id)
    mine = await knowledge.add(AGENT, draft(), cut("secret of the agent"))
    theirs = await knowledge.add(other, draft(), cut("secret of the thread"))
    assert mine.entry_id != theirs.entry_id
    assert await knowledge.entries([other]) == (theirs,)
    assert await knowledge.entries([AGENT, other]) == (theirs, mine)
    assert await found(knowledge, "secret", mine) == ["secret of the agent"]
    assert await knowledge.remove(other, mine.entry_id) is False
    assert await knowledge.entries([AGENT]) == (mine,)


async def test_what_is_removed_is_found_no_more(knowledge: SqlKnowledge, stores: Stores) -> None:
    kept = await knowledge.add(AGENT, draft(name="k", content="2"), cut("kept words"))
    entry = await knowledge.add(AGENT, draft(), cut("removed words", "more words"))
    assert await knowledge.remove(AGENT, entry.entry_id) is True
    assert await knowledge.remove(AGENT, entry.entry_id) is False
    assert await found(knowledge, "words", entry, kept) == ["kept words"]
    assert await stores.count("knowledge_chunk") == 1


async def test_a_forgotten_thread_takes_its_knowledge_along(
    knowledge: SqlKnowledge, vectors: SqlKnowledgeVectors, stores: Stores
) -> None:
    thread = await stores.conversations.create(ADDRESS)
    for kind in ("thread", "reading"):
        entry = await knowledge.add(Scope(kind, thread.thread_id), draft(), cut("words"))
        await vectors.insert_missing(entry.entry_id, "m", [[0.0, 0.0]])
    await stores.conversations.delete_thread(thread.thread_id)
    assert await stores.count("knowledge_entry") == 0
    assert await stores.count("knowledge_chunk") == 0
    assert await stores.count("knowledge_vector") == 0
    with pytest.raises(ToolError, match="no longer exists"):
        await knowledge.add(Scope("thread", thread.thread_id), draft(), cut("words"))


async def test_an_entry_is_unseen_until_it_is_whole(knowledge: SqlKnowledge) -> None:
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def slowly():
        for chunk in cut(*(f"words {number}" for number in range(200))):
            if chunk.number == 150:
                entries = asyncio.run_coroutine_threadsafe(knowledge.entries([AGENT]), loop)
                seen.append(len(entries.result(timeout=30)))
            yield chunk

    await knowledge.add(AGENT, draft(), slowly())
    assert (seen, len(await knowledge.entries([AGENT]))) == ([0], 1)


async def test_an_add_whose_thread_is_forgotten_says_so(knowledge: SqlKnowledge, stores: Stores) -> None:
    thread = await stores.conversations.create(ADDRESS)
    loop = asyncio.get_running_loop()

    def slowly():
        for chunk in cut(*(f"words {number}" for number in range(200))):
            if chunk.number == 150:
                forget = stores.conversations.delete_thread(thread.thread_id)
                asyncio.run_coroutine_threadsafe(forget, loop).result(timeout=30)
            yield chunk

    with pytest.raises(ToolError, match="was deleted while"):
        await knowledge.add(Scope("thread", thread.thread_id), draft(), slowly())
    assert await stores.count("knowledge_chunk") == 0


async def test_an_add_that_broke_off_is_no_obstacle_and_goes_after_an_hour(
    knowledge: SqlKnowledge, stores: Stores
) -> None:
    def broken():
        yield from cut(*("words" for _ in range(100)))
        raise RuntimeError("broke off")

    with pytest.raises(RuntimeError):
        await knowledge.add(AGENT, draft(), broken())
    assert await knowledge.entries([AGENT]) == ()
    for minutes, count in ((59, 2), (61, 1)):
        earlier = update(knowledge_entries).values(created_at=datetime.now(UTC) - timedelta(minutes=minutes))
        await stores.database.write(TEST, lambda c, e=earlier: c.execute(e).close())
        entry = await knowledge.add(AGENT, draft(content=f"{minutes}"), cut("words"))
        assert await found(knowledge, "words", entry) == ["words"]
        assert await stores.count("knowledge_entry") == count


async def test_rare_terms_count_more_than_common_ones(knowledge: SqlKnowledge) -> None:
    texts = [f"the report number {number} speaks of money" for number in range(30)]
    entry = await knowledge.add(AGENT, draft(), cut(*texts, "one walrus"))
    assert (await found(knowledge, "money report walrus", entry))[0] == "one walrus"


async def test_chinese_is_found_by_words_that_no_space_divides(knowledge: SqlKnowledge) -> None:
    texts = ("数据库可以保存文件。", "模型在八块显卡上训练了三天半。", "天气很好。")
    entry = await knowledge.add(AGENT, draft(), cut(*texts))
    assert await found(knowledge, "这个模型要训练多久？", entry) == [texts[1]]
    assert await found(knowledge, "数据", entry) == [texts[0]]
    assert await found(knowledge, "库", entry) == [texts[0]]
    assert await found(knowledge, "半", entry) == [texts[1]]
    assert await found(knowledge, "鲸鱼", entry) == []


async def test_english_is_found_in_other_forms_and_cases(knowledge: SqlKnowledge) -> None:
    entry = await knowledge.add(AGENT, draft(), cut("FLIPPING Images in the Café", "other"))
    assert len(await found(knowledge, "how to flip an image", entry)) == 1
    assert len(await found(knowledge, "cafe", entry)) == 1


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", '"quoted" AND NOT', "a:b* (c) ^d", "\\ ' & | !", "NEAR(a b)", "\0 \ud800", "%_"]
)
async def test_signs_of_query_languages_are_only_text(knowledge: SqlKnowledge, text: str) -> None:
    entry = await knowledge.add(AGENT, draft(), cut(f"before {text} after", "nothing"))
    assert len(await found(knowledge, f"before {text}", entry)) == 1
    assert await found(knowledge, "'\"*()", entry) == []


async def test_no_terms_and_no_entries_find_nothing(knowledge: SqlKnowledge) -> None:
    entry = await knowledge.add(AGENT, draft(), ())
    assert entry.tokens == 0
    entry = await knowledge.add(AGENT, draft(content="2"), cut("words"))
    assert await found(knowledge, "", entry) == []
    assert await found(knowledge, "words") == []


async def test_as_many_chunks_are_found_as_are_wanted(knowledge: SqlKnowledge) -> None:
    entry = await knowledge.add(AGENT, draft(), cut(*("same words" for _ in range(20))))
    hits = await knowledge.search(query_terms("words"), [entry.entry_id], limit=5)
    assert [hit.chunk.number for hit in hits] == [0, 1, 2, 3, 4]
    assert {hit.entry_id for hit in hits} == {entry.entry_id}


async def test_the_nearest_vectors_are_found(knowledge: SqlKnowledge, vectors: SqlKnowledgeVectors) -> None:
    chance = random.Random(7)
    rows = [[chance.gauss(0, 1) for _ in range(64)] for _ in range(200)]
    entry = await knowledge.add(AGENT, draft(), cut(*(f"chunk {at}" for at in range(200))))
    for entry_id in (entry.entry_id, entry.entry_id, "unknown"):
        await vectors.insert_missing(entry_id, "m", rows)
    asked = [value + chance.gauss(0, 0.3) for value in rows[42]]
    hits = await vectors.nearest(asked, "m", [entry.entry_id], limit=3)
    assert hits[0].chunk.text == "chunk 42"
    product = sum(a * b for a, b in zip(asked, rows[42], strict=True))
    assert math.isclose(hits[0].score, product / (math.hypot(*asked) * math.hypot(*rows[42])), rel_tol=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert await vectors.nearest(asked, "another model", [entry.entry_id], limit=3) == ()
    assert await vectors.nearest(asked, "m", ["unknown"], limit=3) == ()
    assert await vectors.nearest(asked[:63], "m", [entry.entry_id], limit=3) == ()
    assert await vectors.nearest(asked[:8], "m", [entry.entry_id], limit=3) == ()
    assert await vectors.has_vectors(entry.entry_id, "m")
    assert not await vectors.has_vectors(entry.entry_id, "another model")
