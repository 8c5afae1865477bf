"""A worker whose database is cut off in the middle of a run."""

import asyncio

import pytest

from core.domain.budget import PlannedCall, Reservation
from core.domain.errors import StorageUnavailable
from core.domain.threads import Lease, ThreadInput
from core.run.event_replay import follow_events
from core.run.worker import Worker
from core.stores import JournalEntry
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World


class DoubtfulJournal(SqlRunJournal):
    """A journal whose writes are stored, and the answer to one of those with messages is lost."""

    writes = 0
    lost = 0
    stored = ""

    async def write(self, lease: Lease, entry: JournalEntry) -> None:
        await super().write(lease, entry)
        self._doubt(entry)

    async def begin_turn(
        self, lease: Lease, entry: JournalEntry, call: PlannedCall
    ) -> tuple[tuple[ThreadInput, ...], Reservation]:
        begun = await super().begin_turn(lease, entry, call)
        self._doubt(entry)
        return begun

    def _doubt(self, entry: JournalEntry) -> None:
        self.writes += bool(entry.messages)
        if self.writes <= self.lost:
            self.stored += str(entry.messages)
        if entry.messages and self.writes == self.lost:
            raise StorageUnavailable("connection was closed in the middle of operation")


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_write_that_was_stored_though_it_failed_is_there_once(world: World, lost: int) -> None:
    journal = DoubtfulJournal(world.database)
    journal.lost = lost
    world.with_deps(journal=journal)
    world.model.turns += [calls(("echo", '{"text": "a"}'), said="Echoing."), text("Done."), text("Done.")]
    run_id = await world.say("hello")
    queue, conversations = MemoryRunQueue(), world.deps.stores.conversations
    worker = Worker(world.deps, queue)
    worker.start()
    await queue.put(run_id)
    async with asyncio.timeout(30):
        async for _ in follow_events(run_id, None, conversations=conversations, bus=world.deps.messaging.bus):
            pass
    await worker.close()
    assert (await world.read_run(run_id)).status == "completed"
    assert journal.writes >= lost
    history = await world.history(run_id)
    assert [one.type for one in history].count("user") == 1
    said = sum("Echoing." in str(one.content) for one in history)
    # a write in the background may be in doubt before the answer is stored: the model is then asked again
    assert said == ("Echoing." in journal.stored)
    assert sum(one.type == "tool" for one in history) == said
    assert len(world.bench.said) <= 1  # a call that was only begun is told to the model as interrupted
