"""Cursors are stored together, and none is lost."""

import asyncio
from collections.abc import Mapping

from bots.inbound.cursor_writer import CursorWriter
from core.domain.errors import StorageUnavailable
from tests.histories.virtual_time import in_virtual_time
from tests.support.waiting import until


class Store:
    def __init__(self, failures: int = 0) -> None:
        self.writes: list[dict[str, str]] = []
        self.failures = failures
        self.gate = asyncio.Event()
        self.gate.set()

    async def advance_cursors(self, platform: str, cursors: Mapping[str, str]) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("away")
        self.writes.append(dict(cursors))

    async def cursors(self, platform: str) -> dict[str, str]:
        return {}


async def test_the_first_is_stored_at_once_and_later_ones_together() -> None:
    store = Store()
    writer = CursorWriter(store, "slack")
    writer.advance("C1", "1")
    await until(lambda: store.writes)
    for cursor in ("2", "3"):
        writer.advance("C1", cursor)
        writer.advance("C2", cursor)
    await writer.flush()
    assert store.writes == [{"C1": "1"}, {"C1": "3", "C2": "3"}]


@in_virtual_time
async def test_they_are_stored_every_two_seconds_without_another_call() -> None:
    store = Store(failures=2)
    CursorWriter(store, "slack").advance("C1", "1")
    await asyncio.sleep(3.9)
    assert store.writes == []
    await asyncio.sleep(0.2)
    assert store.writes == [{"C1": "1"}]


async def test_a_write_that_flush_interrupts_is_repeated_with_what_came_since() -> None:
    store = Store()
    store.gate.clear()
    writer = CursorWriter(store, "slack")
    writer.advance("C1", "1")
    writer.advance("C2", "1")
    await asyncio.sleep(0)
    writer.advance("C1", "2")
    store.gate.set()
    await writer.flush()
    assert store.writes[-1] == {"C1": "2", "C2": "1"}
