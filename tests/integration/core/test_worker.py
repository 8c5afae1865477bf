"""A run that a worker holds and does not execute would hang for as long as that worker lives: it gives it back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from core.domain.budget import PlannedCall, Reservation
from core.domain.errors import StorageUnavailable
from core.domain.ids import new_id
from core.domain.threads import Lease, ThreadInput
from core.run.event_replay import follow
from core.run.execute import execute
from core.run.worker import Worker
from core.stores import NOTHING_NEW, JournalEntry, LoadedRun
from core.tasks import cancel, spawn
from storage.memory.run_queue import MemoryRunQueue
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, text
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

    async def load_run(self, run_id: str) -> LoadedRun | None:
        if self.is_first:
            self.is_first = False
            raise StorageUnavailable("connection was closed in the middle of operation")
        return await super().load_run(run_id)


class BrokenJournal(SqlRunJournal):
    """A journal that breaks the first run so badly that not even its failure can be stored."""

    errors = 2

    async def begin_turn(
        self, lease: Lease, entry: JournalEntry, call: PlannedCall
    ) -> tuple[tuple[ThreadInput, ...], Reservation]:
        self._break()
        return await super().begin_turn(lease, entry, call)

    async def read_inputs(self, lease: Lease, entry: JournalEntry = NOTHING_NEW) -> tuple[ThreadInput, ...]:
        self._break()
        return await super().read_inputs(lease, entry)

    def _break(self) -> None:
        if self.errors:
            self.errors -= 1
            raise RuntimeError("broken")


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


@asynccontextmanager
async def at_work(
    world: World, *, queued: Sequence[str] = (), runs_at_once_max: int = 200, queue: MemoryRunQueue | None = None
) -> AsyncGenerator[MemoryRunQueue, None]:
    queue = queue or MemoryRunQueue()
    for run_id in queued:
        await queue.put(run_id)
    worker = Worker(world.deps, queue, runs_at_once_max=runs_at_once_max)
    worker.start()
    try:
        yield queue
    finally:
        await worker.close()


async def ended(world: World, run_id: str) -> str:
    """How the run ended."""
    conversations = SqlConversations(world.database)
    async with asyncio.timeout(30):
        async for _ in follow(run_id, None, conversations=conversations, bus=world.deps.messaging.bus):
            pass
    run = await conversations.run(run_id)
    assert run is not None
    return run.status


@pytest.mark.parametrize("trouble", ["claim", "read", "bug"])
async def test_a_run_that_is_held_and_not_executed_is_taken_up_again(world: World, trouble: str) -> None:
    match trouble:
        case "claim":
            world.with_deps(claims=CutOffClaims(world.database))
        case "read":
            world.with_deps(conversations=CutOffConversations(world.database))
        case _:
            world.with_deps(journal=BrokenJournal(world.database))
    world.model.turns.append(text("Done."))
    run_id = await world.say("hello")
    async with at_work(world):
        assert await ended(world, run_id) == "completed"
    assert len(world.model.requests) == 1


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_write_that_was_stored_though_it_failed_is_there_once(world: World, lost: int) -> None:
    journal = DoubtfulJournal(world.database)
    journal.lost = lost
    world.with_deps(journal=journal)
    world.model.turns += [calls(("echo", '{"text": "a"}'), said="Echoing."), text("Done."), text("Done.")]
    run_id = await world.say("hello")
    async with at_work(world) as queue:
        await queue.put(run_id)
        assert await ended(world, run_id) == "completed"
    assert journal.writes >= lost
    history = await world.history(run_id)
    assert [one.type for one in history].count("user") == 1
    said = sum("Echoing." in str(one.content) for one in history)
    # a write in the background may be in doubt before the answer is stored: the model is then asked again
    assert said == ("Echoing." in journal.stored)
    assert sum(one.type == "tool" for one in history) == said
    assert len(world.bench.said) <= 1  # a call that was only begun is told to the model as interrupted


async def test_a_stopped_run_that_had_begun_ends_although_no_slot_is_free(world: World) -> None:
    """Another worker gave it up in the middle of a turn, so its history is mended first."""
    world.model.turns = [calls(("wait", '{"text": "begun"}')), calls(("wait", '{"text": "busy"}'))]
    begun = await world.say("a long one")
    first = spawn(execute(begun, world.deps), name="a worker that dies")
    await world.bench.has_started("begun").wait()
    await cancel(first)
    world.address = replace(world.address, thread_key=new_id())
    busy = await world.say("another long one")
    async with at_work(world, queued=[busy], runs_at_once_max=1):
        await world.bench.has_started("busy").wait()
        await world.stops.request_stop(begun)
        assert await ended(world, begun) == "stopped"
        assert (await world.read_run(busy)).status == "running"
        world.model.turns = [text("Done.")]
        world.bench.gate("busy").set()
        assert await ended(world, busy) == "completed"
