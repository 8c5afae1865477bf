"""Tests that runs are completed late if PostgreSQL's disk or Redis' memory is full in the meantime."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from core.domain.errors import StorageUnavailable
from tests.chaos.cluster import Cluster, open_cluster
from tests.chaos.disks import MEBIBYTE, Disk, small_disk
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers

DISK_BYTES = 160 * MEBIBYTE
SETTLE_SECONDS = 150.0


@asynccontextmanager
async def _on_a_small_disk() -> AsyncGenerator[tuple[Disk, Cluster], None]:
    """Context manager: yields a small disk, and a cluster whose database is on it.

    One run is streaming, and another is executing a command.
    """
    with small_disk(DISK_BYTES) as disk:
        folder = disk.folder / "postgresql"
        folder.mkdir()
        async with (
            servers(folder=folder) as (database, cache, url),
            open_cluster("slack", url, cache.answer) as cluster,
        ):
            await cluster.start_busy()
            yield disk, cluster
            disk.clear()
            if not await _answers(cluster):
                await database.begin()
                await database.end()
            await cluster.say("Work", "a9")
            await settle_and_check(cluster, seconds=SETTLE_SECONDS)


async def _answers(cluster: Cluster) -> bool:
    with suppress(StorageUnavailable):
        return bool(await cluster.rows("SELECT 1"))
    return False


async def test_postgresql_may_die_of_its_full_disk() -> None:
    async with _on_a_small_disk() as (disk, cluster):
        disk.fill()
        with suppress(StorageUnavailable):
            await cluster.rows("SELECT pg_switch_wal()")
        await cluster.say("Hello", "a3")
        log = disk.folder / "postgresql" / "postgres.log"
        await cluster.until(lambda: "PANIC" in log.read_text(), "the server dies")
        await cluster.say("Hello", "a4")
