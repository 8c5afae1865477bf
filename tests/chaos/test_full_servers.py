"""Tests that runs are completed late if PostgreSQL's disk or Redis' memory is full in the meantime."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from core.domain.errors import StorageUnavailable
from tests.chaos.crew import Crew, crew
from tests.chaos.disks import MEBIBYTE, Disk, small_disk
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import full_redis, servers

DISK_BYTES = 160 * MEBIBYTE
NO_SPACE = "No space left on device"
SETTLE_SECONDS = 150.0


@asynccontextmanager
async def _on_a_small_disk() -> AsyncGenerator[tuple[Disk, Crew], None]:
    """Context manager: yields a small disk, and a crew whose database is on it.

    One run is streaming, and another is executing a command.
    """
    with small_disk(DISK_BYTES) as disk:
        folder = disk.folder / "postgresql"
        folder.mkdir()
        async with (
            servers(folder=folder) as (database, cache, url),
            crew("slack", url, cache.answer) as told,
        ):
            await _busy(told)
            yield disk, told
            disk.clear()
            if not await _answers(told):
                await database.begin()
                await database.end()
            await told.say("Work", "a9")
            await settle_and_check(told, seconds=SETTLE_SECONDS)


async def _busy(told: Crew) -> None:
    await told.start()
    await told.say("Stream", "a1")
    await told.say("Work", "a2")
    await told.until(lambda: told.stage.workspace_file("marks.txt"), "the command runs")


async def _answers(told: Crew) -> bool:
    with suppress(StorageUnavailable):
        return bool(await told.rows("SELECT 1"))
    return False


@pytest.mark.slow
async def test_redis_may_be_full() -> None:
    async with servers() as (_, cache, url), crew("slack", url, cache.answer) as told:
        await _busy(told)
        async with full_redis(cache.answer):
            await told.say("Hello", "a3")
            await told.say("Work", "a4")
            await told.until(lambda: told.has_ended("a3"), "it answers all the same")
            await told.until(lambda: told.has_ended("a4"), "that, too")
            assert "OOM" in "".join(one.log() for one in told.programs())
        await told.say("Work", "a5")
        await settle_and_check(told)


@pytest.mark.slow
async def test_the_disk_of_postgresql_may_be_full() -> None:
    async with _on_a_small_disk() as (disk, told):
        disk.fill()
        for number in range(3, 9):
            await told.say("Hello", f"a{number}")
        await told.until(
            lambda: any(NO_SPACE in one.log() for one in told.programs()), "a write is refused"
        )


@pytest.mark.long
async def test_postgresql_may_die_of_its_full_disk() -> None:
    async with _on_a_small_disk() as (disk, told):
        disk.fill()
        with suppress(StorageUnavailable):
            await told.rows("SELECT pg_switch_wal()")
        await told.say("Hello", "a3")
        log = disk.folder / "postgresql" / "postgres.log"
        await told.until(lambda: "PANIC" in log.read_text(), "the server dies")
        await told.say("Hello", "a4")
