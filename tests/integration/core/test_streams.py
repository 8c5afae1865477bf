"""Following a run: stored and live events, each once and in order."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from core.domain.events import Cursor, RunEvent, RunFinished, TextStreamed, TurnStarted
from core.domain.threads import Lease
from core.http_shutdown import shut_down_server
from core.run.event_replay import follow_events
from core.stores import JournalEntry
from core.tasks import cancel, spawn
from storage.memory.event_bus import MemoryEventBus
from tests.contracts.stores import COMPLETED, Stores, event, stores_over
from tests.databases import open_sqlite


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    database = await open_sqlite(tmp_path / "x.db")
    yield stores_over(database)
    await database.close()


@pytest.fixture
def bus() -> MemoryEventBus:
    return MemoryEventBus(lag_max=20)


class Reader:
    """Follows a run in the background and keeps what it got."""

    def __init__(
        self, stores: Stores, bus: MemoryEventBus, run_id: str, after: Cursor | None, *, recheck_seconds: float = 0.05
    ) -> None:
        self.cursors: list[str] = []
        self._got = asyncio.Event()
        self._stream = follow_events(
            run_id, after, conversations=stores.conversations, bus=bus, recheck_seconds=recheck_seconds
        )
        self.task = spawn(self._read(), name="reader")

    async def _read(self) -> None:
        async with aclosing(self._stream) as stream:
            async for group in stream:
                self.cursors += [str(one.cursor) for one in group]
                self._got.set()

    async def got(self, *cursors: str) -> None:
        """Waits until exactly these have come."""
        async with asyncio.timeout(30):
            while self.cursors != list(cursors):
                assert self.cursors == list(cursors)[: len(self.cursors)]
                self._got.clear()
                await self._got.wait()

    async def ended(self) -> list[str]:
        async with asyncio.timeout(30):
            await self.task
        return self.cursors


def _stored(lease: Lease, n: int) -> RunEvent:
    return event(lease, n, TurnStarted(turn_id="t", number=n))


def _chunk(lease: Lease, n: int) -> RunEvent:
    return event(lease, n, TextStreamed(text="x", sequence=n))


async def _store(stores: Stores, lease: Lease, *events: RunEvent) -> None:
    await stores.journal.write(lease, JournalEntry(events=events))


async def _end(stores: Stores, lease: Lease, n: int) -> RunEvent:
    last = event(lease, n, RunFinished(status="completed", finish_reason="stop"))
    taken = tuple(one.input_id for one in await stores.journal.read_inputs(lease))
    entry = JournalEntry(events=(last,), taken_input_ids=taken)
    assert await stores.journal.finish(lease, entry, COMPLETED)
    return last


async def test_a_reader_that_the_bus_dropped_reads_the_rest_from_the_store(stores: Stores, bus: MemoryEventBus) -> None:
    lease = await stores.started()
    reader = Reader(stores, bus, lease.run_id, None)
    await bus.publish([])
    events = [_stored(lease, n) for n in range(1, 101)]
    await _store(stores, lease, *events)
    await bus.publish(events)
    await bus.publish([await _end(stores, lease, 101)])

    assert await reader.ended() == [f"1-{n}" for n in range(1, 102)]


async def test_what_the_bus_did_not_take_is_told_before_what_it_took_later(stores: Stores, bus: MemoryEventBus) -> None:
    lease = await stores.started()
    second = replace(lease, attempt=2)
    await _store(stores, lease, _stored(lease, 1))
    reader = Reader(stores, bus, lease.run_id, None, recheck_seconds=600)
    await reader.got("1-1")
    await _store(stores, lease, _stored(lease, 2), _stored(lease, 4), _stored(lease, 6))
    await bus.publish([_chunk(lease, 5)])
    await bus.publish([_chunk(second, 1)])

    await reader.got("1-1", "1-2", "1-4", "1-5", "1-6", "2-1")
    await cancel(reader.task)


async def test_readers_that_come_at_any_moment_get_every_stored_event_once(stores: Stores, bus: MemoryEventBus) -> None:
    lease = await stores.started()
    readers: list[Reader] = []
    for n in range(1, 40, 2):
        readers.append(Reader(stores, bus, lease.run_id, None))
        stored = _stored(lease, n)
        await _store(stores, lease, stored)
        await bus.publish([stored, _chunk(lease, n + 1)])
    await bus.publish([await _end(stores, lease, 41)])

    for reader in readers:
        cursors = [Cursor.parse(one) for one in await reader.ended()]
        assert cursors == sorted(set(cursors))
        assert {one.n for one in cursors} >= set(range(1, 42, 2))


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_at_the_last_moment_is_not_left_waiting(turns: int) -> None:
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with socket.create_connection(runner.addresses[0]) as caller:
        for _ in range(turns):
            await asyncio.sleep(0)
        await shut_down_server(runner)
        caller.settimeout(30)
        assert await asyncio.to_thread(_heard, caller) == b""


def _heard(caller: socket.socket) -> bytes:
    try:
        return caller.recv(1)
    except ConnectionResetError:  # it was never accepted
        return b""
