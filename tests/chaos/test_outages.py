"""Tests that runs are completed late if Redis or PostgreSQL stops and restarts in the meantime."""

import pytest

from tests.chaos.cluster import open_cluster
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers


@pytest.mark.parametrize("with_redis", [False, True])
async def test_postgresql_may_go_away_and_come_back(with_redis: bool) -> None:
    async with servers() as (database, cache, url), open_cluster("slack", url, cache.answer) as cluster:
        await cluster.start_busy()
        await database.begin()
        if with_redis:
            await cache.begin()
        await cluster.say("Hello", "a3")
        if with_redis:
            await cache.end()
        await database.end()
        await cluster.say("Work", "a4")
        await settle_and_check(cluster, seconds=120)
