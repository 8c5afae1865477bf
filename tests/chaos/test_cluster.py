"""Tests that several bots and workers that freeze and resume show people the same as one healthy process."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from core.failpoints import Failpoint
from storage.sql.stores.run_claims import WORKER_GONE_SECONDS
from tests.chaos.cluster import Cluster, open_cluster
from tests.chaos.invariants import check, settle_and_check


@pytest.mark.parametrize("kind", ["Stream", "Nap"])
async def test_a_worker_that_was_asleep_writes_nothing_when_it_wakes(
    kind: str, postgresql_url: str, redis_url: str
) -> None:
    async with open_cluster("slack", postgresql_url, redis_url) as cluster:
        await cluster.start()
        await cluster.say(kind, "a1")
        sleeper = await cluster.executor()
        if kind == "Nap":
            await cluster.until(lambda: cluster.stage.workspace_file("marks.txt"), "the command runs")
        sleeper.pause()
        (other,) = cluster.others(sleeper)
        await cluster.until(lambda: "attempt 2" in other.log(), "another takes it up", seconds=60)
        await cluster.until_rows(
            "SELECT 1 FROM worker HAVING"  # noqa: S608 - a number of our own
            f" extract(epoch FROM now()) - min(heartbeat_at) > {WORKER_GONE_SECONDS}",
            "it is asleep for longer than its lease",
        )
        sleeper.resume()
        await settle_and_check(cluster)
        await _is_still_so(cluster)
        assert not await _written_by_old_attempts(cluster)


async def _written_by_old_attempts(cluster: Cluster) -> list[tuple[object, ...]]:
    """Returns events of an attempt that were stored after the first event of a later attempt."""
    return await cluster.rows(
        "SELECT a.n FROM run_event a JOIN run_event b ON a.run_id = b.run_id"
        " WHERE a.attempt < b.attempt AND a.created_at > b.created_at"
    )


async def _is_still_so(cluster: Cluster) -> None:
    """Checks that the resumed worker handles another message and leaves older messages unchanged."""
    await cluster.say("Hello", "b1")
    await cluster.say("Work", "b2")
    await settle_and_check(cluster)


async def test_a_worker_that_is_asked_to_end_finishes_its_turn(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url, drain_seconds="30") as cluster:
        await cluster.start()
        await cluster.say("Work", "a1")
        leaver = await cluster.executor()
        await cluster.until(lambda: cluster.stage.workspace_file("marks.txt"), "the command runs")
        leaver.terminate()
        assert await leaver.ended(60) == 0
        await settle_and_check(cluster)
        assert "attempt 2" in cluster.others(leaver)[0].log()
        assert cluster.stage.workspace_file("marks.txt").split() == ["a1"], "the command ran once"
        assert "interrupted while this ran" not in str(cluster.stage.script.requests)


async def test_a_bot_that_is_asked_to_end_finishes_what_it_posts(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url, workers=1) as cluster:
        await cluster.start()
        cluster.stage.platform.misbehave("slow", method="files.upload", times=1, seconds=2)
        await cluster.say("Work", "a1")
        ended = "SELECT 1 FROM run WHERE status = 'completed'"
        await cluster.until_rows(ended, "the run has ended", seconds=60)
        cluster.bots[0].terminate()
        assert await cluster.bots[0].ended(60) == 0
        assert not await cluster.rows("SELECT run_id FROM rendering WHERE is_open"), cluster.report()
        await settle_and_check(cluster)


async def test_the_check_sees_what_is_lost_doubled_or_left_over(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url, workers=1) as cluster:
        await cluster.start()
        said = await cluster.say("Work", "a1")
        await settle_and_check(cluster)
        cluster.sent.append(replace(said, token="never", message_id="0.0"))
        with pytest.raises(AssertionError, match="never has 0 answers"):
            await check(cluster)
        cluster.sent[:] = [replace(said, files=("a1.txt", "lost.txt"))]
        with pytest.raises(AssertionError, match=r"lost\.txt came 0 times"):
            await check(cluster)
        cluster.sent[:] = [said]
        await cluster.database.write(
            Failpoint("test.forge"), lambda c: c.execute(text("UPDATE run SET status = 'running'")).close()
        )
        with pytest.raises(AssertionError, match="have the runs"):
            await check(cluster)
