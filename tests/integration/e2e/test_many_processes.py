"""A bot and workers of their own on one PostgreSQL and one Redis: what people see is what one process shows them."""

import time

import pytest

from tests.chaos.cluster import open_cluster
from tests.chaos.harness import PlatformName
from tests.chaos.invariants import settle_and_check
from tests.contracts.redis_servers import redis_client
from tests.servers import redis


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_worker_answers_what_a_bot_took_in(platform: PlatformName, postgresql_url: str, redis_url: str) -> None:
    async with open_cluster(platform, postgresql_url, redis_url) as cluster:
        await cluster.start()
        await cluster.say("Hello", "a1")
        await settle_and_check(cluster)


async def test_a_stop_is_heard_by_the_worker_that_has_the_run(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url) as cluster:
        await cluster.start()
        await cluster.say("Nap", "a1")
        await cluster.until(lambda: cluster.stage.workspace_file("marks.txt"), "the command runs")
        began = time.monotonic()
        await cluster.stage.press("Stop")
        await cluster.until(lambda: cluster.stage.shows("Stopped"), "it says so")

        assert time.monotonic() - began < 30
        assert await cluster.runs() == ["stopped"]


async def test_what_a_dead_bot_left_is_shown_by_the_other(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("slack", postgresql_url, redis_url, bots=2) as cluster:
        killed, other = cluster.bots
        await cluster.start()
        await cluster.say("Nap", "a1")
        await cluster.until(lambda: cluster.stage.workspace_file("marks.txt"), "the command runs")
        killed.kill()
        (await cluster.executor()).kill()
        await settle_and_check(cluster)
        assert other.is_running


async def test_without_redis_runs_are_late_and_not_lost(postgresql_url: str) -> None:
    with redis() as url:
        async with open_cluster("slack", postgresql_url, url) as cluster:
            await cluster.start()
            await cluster.until_rows("SELECT 1 FROM worker OFFSET 2", "a bot and two workers beat")
            async with redis_client(url) as (client, _streams):
                await client.shutdown(nosave=True)
            await cluster.say("Hello", "a1")
            await settle_and_check(cluster)
