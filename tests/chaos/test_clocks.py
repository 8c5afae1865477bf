"""Tests that clocks may jump by an hour during runs: nothing is lost, and nothing waits for the hour to pass."""

import time

import pytest

from tests.chaos.clocks import Clock
from tests.chaos.cluster import open_cluster
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers
from tests.servers import server_folder

HOUR = 3600
BY_ANOTHER_CLOCK = """
    SELECT run_id FROM run
    WHERE abs(extract(epoch FROM created_at) - extract(epoch FROM clock_timestamp())) > 1800
"""


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
async def test_the_clocks_of_bot_and_worker_may_jump(seconds: int) -> None:
    with server_folder("thclock-") as folder:
        ours, theirs = Clock(folder, "ours"), Clock(folder, "theirs")
        async with servers() as (_, cache, url), open_cluster("slack", url, cache.answer) as cluster:
            for program in (cluster.bots[0], cluster.workers[0]):
                program.environment |= ours.environment
            cluster.workers[1].environment |= theirs.environment
            await cluster.start_busy()
            ours.jump(seconds)
            theirs.jump(-seconds)
            await cluster.say("Work", "a3")
            await cluster.say("Hello", "a4")
            await settle_and_check(cluster)
            assert await cluster.rows(BY_ANOTHER_CLOCK)
            ours.jump(0)
            cluster.workers[0].kill()
            await cluster.say("Hello", "a5", thread_id=cluster.sent[0].thread_id)
            await settle_and_check(cluster)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
async def test_the_clock_of_the_database_may_jump(seconds: int) -> None:
    """A worker that dies when the database's clock jumps is replaced as usual."""
    with server_folder("thclock-") as folder:
        clock = Clock(folder, "database")
        async with (
            servers(clock=clock.environment) as (_, cache, url),
            open_cluster("slack", url, cache.answer) as cluster,
        ):
            await cluster.start()
            await cluster.say("Stream", "a1")
            await cluster.say("Work", "a2")
            worker = await cluster.executor()
            worker.pause()  # so that it sends no heartbeat after the jump
            clock.jump(seconds)
            worker.kill()
            await cluster.say("Hello", "a3")
            await settle_and_check(cluster)
            ((now,),) = await cluster.rows("SELECT extract(epoch FROM clock_timestamp())")
            assert abs(float(str(now)) - time.time() - seconds) < HOUR / 2
