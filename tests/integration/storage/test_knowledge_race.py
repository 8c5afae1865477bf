"""Two documents of one name that are finished at once, in two transactions of PostgreSQL."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from core.knowledge.chunk import Chunk
from core.knowledge.ports import EntryDraft, KnowledgeEntry, Scope
from core.tasks import spawn
from storage.sql.database import Database
from storage.sql.drivers import await_in_greenlet
from storage.sql.stores.knowledge import SqlKnowledge
from tests.databases import opened

AGENT = Scope("agent", "agent-1")
WORDS = Chunk(number=0, page=None, place="", text="words", tokens=1)
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
STATEMENTS = pytest.mark.parametrize(
    "statement", ["DELETE FROM knowledge_entry .*name = ", "UPDATE knowledge_entry SET .*is_ready"]
)
"""Of those that finish a document: what had its name is deleted, and it becomes ready."""


def draft(content: str) -> EntryDraft:
    return EntryDraft(
        name="a.txt", kind="txt", title="", content_hash=content, size_bytes=5, head="head"
    )


@contextmanager
def added_at(
    statement: str, database: Database, other: EntryDraft
) -> Iterator[list[asyncio.Task[KnowledgeEntry]]]:
    """Adds the other document when such a statement is about to be executed for the first time, which goes on once
    that is done or waits for a lock."""
    adding: list[asyncio.Task[KnowledgeEntry]] = []

    async def add() -> None:
        adding.append(spawn(SqlKnowledge(database).add(AGENT, other, [WORDS]), name="add"))
        while not adding[0].done() and not await database.read(
            lambda c: c.execute(WAITING).scalar_one()
        ):
            await asyncio.sleep(0.01)

    def before(_connection: object, _cursor: object, executed: str, *_rest: object) -> None:
        if re.match(statement, executed, re.DOTALL) and not adding:
            await_in_greenlet(add())

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield adding
    finally:
        event.remove(Engine, "before_cursor_execute", before)


@STATEMENTS
async def test_the_same_content_is_one_entry(postgresql_url: str, statement: str) -> None:
    async with opened(postgresql_url) as database:
        with added_at(statement, database, draft("1")) as adding:
            mine = await SqlKnowledge(database).add(AGENT, draft("1"), [WORDS])

        assert await adding[0] == mine
        assert await SqlKnowledge(database).entries([AGENT]) == (mine,)


@STATEMENTS
async def test_one_of_two_contents_replaces_the_other(postgresql_url: str, statement: str) -> None:
    async with opened(postgresql_url) as database:
        with added_at(statement, database, draft("2")) as adding:
            mine = await SqlKnowledge(database).add(AGENT, draft("1"), [WORDS])

        theirs = await adding[0]
        (left,) = await SqlKnowledge(database).entries([AGENT])
        assert left in (mine, theirs)
