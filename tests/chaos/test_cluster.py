"""Tests that a bot that ends finishes what it posts, and that the check of a deployment sees what is lost."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from core.failpoints import Failpoint
from tests.chaos.cluster import open_cluster
from tests.chaos.invariants import check, settle_and_check


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
