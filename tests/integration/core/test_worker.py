"""A run that a worker holds and does not execute would hang for as long as that worker lives: it gives it back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from core.domain.errors import StorageUnavailable
from core.domain.threads import Lease, Run, ThreadInput
from core.run.event_replay import follow
from core.run.worker import Worker
from core.stores import NOTHING_NEW, JournalEntry
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.played_model import calls, text
from tests.integration.core.conftest import World


class CutOffClaims(SqlRunClaims):
    """A database whose first answer to a claim is lost after it was stored."""

    is_first = True

    async def claim(self, run_id: str, worker_id: str) -> Lease | None:
        lease = await super().claim(run_id, worker_id)
        if self.is_first:
            self.is_first = False
            raise StorageUnavailable("connection was closed in the middle of operation")
        return lease


class CutOffConversations(SqlConversations):
    """A database that goes away once, for whoever has just claimed a run."""

    is_first = True

    async def run(self, run_id: str) -> Run | None:
        if self.is_first:
            self.is_first = False
            raise StorageUnavailable("connection was closed in the middle of operation")
        return await super().run(run_id)


class BrokenJournal(SqlRunJournal):
    """A journal that breaks the first run so badly that not even its failure can be stored."""

    is_first = True

    async def approved_tools(self, thread_id: str) -> frozenset[str]:
        if self.is_first:
            raise RuntimeError("broken")
        return await super().approved_tools(thread_id)

    async def inputs(
        self, lease: Lease, entry: JournalEntry = NOTHING_NEW
    ) -> tuple[ThreadInput, ...]:
        if self.is_first:
            self.is_first = False
            raise RuntimeError("broken again")
        return await super().inputs(lease, entry)


class DoubtfulJournal(SqlRunJournal):
    """A journal whose writes are stored, and the answer to one of those with messages is lost."""

    writes = 0
    lost = 0

    async def write(self, lease: Lease, entry: JournalEntry) -> None:
        await super().write(lease, entry)
        self._doubt(entry)

    async def inputs(
        self, lease: Lease, entry: JournalEntry = NOTHING_NEW
    ) -> tuple[ThreadInput, ...]:
        found = await super().inputs(lease, entry)
        self._doubt(entry)
        return found

    def _doubt(self, entry: JournalEntry) -> None:
        self.writes += bool(entry.messages)
        if entry.messages and self.writes == self.lost:
            raise StorageUnavailable("connection was closed in the middle of operation")


@asynccontextmanager
async def at_work(world: World) -> AsyncGenerator[MemoryRunQueue, None]:
    queue = MemoryRunQueue()
    worker = Worker(world.engine, queue)
    worker.start()
    try:
        yield queue
    finally:
        await worker.close()


async def ended(world: World, run_id: str) -> str:
    """How the run ended."""
    conversations = SqlConversations(world.database)
    async with asyncio.timeout(30):
        async for _ in follow(run_id, None, conversations=conversations, bus=world.engine.bus):
            pass
    run = await conversations.run(run_id)
    assert run is not None
    return run.status


@pytest.mark.parametrize("trouble", ["claim", "read", "bug"])
async def test_a_run_that_is_held_and_not_executed_is_taken_up_again(
    world: World, trouble: str
) -> None:
    match trouble:
        case "claim":
            world.with_engine(claims=CutOffClaims(world.database))
        case "read":
            world.with_engine(conversations=CutOffConversations(world.database))
        case _:
            world.with_engine(journal=BrokenJournal(world.database))
    world.model.turns.append(text("Done."))
    run_id = await world.say("hello")
    async with at_work(world):
        assert await ended(world, run_id) == "completed"
    assert len(world.model.requests) == 1


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_write_that_was_stored_though_it_failed_is_there_once(
    world: World, lost: int
) -> None:
    journal = DoubtfulJournal(world.database)
    journal.lost = lost
    world.with_engine(journal=journal)
    world.model.turns += [
        calls(("echo", '{"text": "a"}'), said="Echoing."),
        text("Done."),
        text("Done."),
    ]
    run_id = await world.say("hello")
    async with at_work(world) as queue:
        await queue.put(run_id)
        assert await ended(world, run_id) == "completed"
    assert journal.writes >= lost
    history = await world.history(run_id)
    assert [one.type for one in history].count("user") == 1
    assert sum("Echoing." in str(one.content) for one in history) == 1
    assert sum(one.type == "tool" for one in history) == 1
    assert (
        len(world.bench.said) <= 1
    )  # a call that was only begun is told to the model as interrupted
