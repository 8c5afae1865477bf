"""Two documents of one name that are finished or named at once, in two transactions of PostgreSQL."""

from contextlib import suppress
from functools import partial

import pytest

from core.domain.errors import ToolError
from core.knowledge.chunk import Chunk
from core.knowledge.ports import EntryDraft, Scope
from storage.sql.stores.knowledge import SqlKnowledge, SqlKnowledgeVectors
from tests.contracts.stores import ADDRESS, stores_over
from tests.databases import opened
from tests.integration.storage.interleaving import played_at

AGENT = Scope("agent", "agent-1")
WORDS = Chunk(number=0, page=None, place="", text="words", tokens=1)
STATEMENTS = pytest.mark.parametrize(
    "statement", ["DELETE FROM knowledge_entry .*name = ", "UPDATE knowledge_entry SET .*is_ready"]
)
"""Of those that finish a document: what had its name is deleted, and it becomes ready."""


def draft(content: str, name: str = "a.txt") -> EntryDraft:
    return EntryDraft(name=name, kind="txt", title="", content_hash=content, size_bytes=5)


@pytest.mark.parametrize("content", ["1", "2"], ids=["the same content", "another content"])
@STATEMENTS
async def test_of_two_with_one_name_one_entry_is_left(postgresql_url: str, statement: str, content: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        other = partial(knowledge.add, AGENT, draft(content), [WORDS])
        async with played_at(statement, database, other) as adding:
            mine = await knowledge.add(AGENT, draft("1"), [WORDS])
        theirs = adding[0].result()
        (left,) = await knowledge.entries([AGENT])
        assert left in (mine, theirs)
        assert (mine == theirs) is (content == "1")


async def test_of_two_that_are_given_one_name_one_is_left(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        ids = [(await knowledge.add(AGENT, draft(name, name), [WORDS])).entry_id for name in ("a", "b")]
        other = partial(knowledge.rename, AGENT, ids[1], "c")
        async with played_at("DELETE FROM knowledge_entry", database, other, is_after=True):
            await knowledge.rename(AGENT, ids[0], "c")
        (left,) = await knowledge.entries([AGENT])
        assert (left.name, left.entry_id) == ("c", ids[1])


async def test_what_is_added_while_its_thread_is_forgotten_goes_with_it(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        stores = stores_over(database)
        thread = await stores.conversations.create(ADDRESS)
        forget = partial(stores.conversations.delete_thread, thread.thread_id)
        async with played_at("INSERT INTO knowledge_entry", database, forget):
            with suppress(ToolError):
                place = Scope("thread", thread.thread_id)
                await SqlKnowledge(database).add(place, draft("1"), [WORDS])
        assert await stores.count("knowledge_entry") == 0


async def test_embeddings_of_an_entry_that_is_removed_go_with_it(postgresql_url: str) -> None:
    async with opened(postgresql_url) as database:
        knowledge = SqlKnowledge(database)
        entry = await knowledge.add(AGENT, draft("1"), [WORDS])
        remove = partial(knowledge.remove, AGENT, entry.entry_id)
        async with played_at("INSERT INTO knowledge_vector", database, remove) as removing:
            await SqlKnowledgeVectors(database).insert_missing(entry.entry_id, "m", [[1.0]])
        assert removing[0].result()
        assert await stores_over(database).count("knowledge_vector") == 0
