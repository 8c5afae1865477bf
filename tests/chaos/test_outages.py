"""Tests that runs are completed late if Redis or PostgreSQL stops and restarts in the meantime."""

import pytest

from tests.chaos.cluster import open_cluster
from tests.chaos.invariants import settle_and_check
from tests.chaos.outages import servers
from tests.contracts.redis_servers import redis_client


async def test_an_emptied_redis_loses_nothing() -> None:
    async with servers() as (_, cache, url), open_cluster("slack", url, cache.answer) as cluster:
        await cluster.start_busy()
        async with redis_client(cache.answer):
            pass  # entering the context empties Redis
        await cluster.say("Work", "a3")
        await settle_and_check(cluster)


async def test_redis_may_go_away_and_come_back() -> None:
    async with servers() as (_, cache, url), open_cluster("slack", url, cache.answer) as cluster:
        await cluster.start_busy()
        await cache.begin()
        await cluster.say("Hello", "a3")
        await cluster.until(lambda: cluster.has_ended("a3"), "it answers", seconds=60)
        await cache.end()
        await cluster.say("Work", "a4")
        await settle_and_check(cluster)


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


async def test_connections_to_the_database_may_break() -> None:
    async with servers() as (_, cache, url), open_cluster("slack", url, cache.answer) as cluster:
        await cluster.start_busy()
        for _ in range(5):
            await cluster.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        await cluster.say("Work", "a3")
        await settle_and_check(cluster)


async def test_a_model_that_hangs_and_breaks_off_is_asked_again() -> None:
    scenario = """
conversations:
  - name: talk
    when: {user: {contains: "Hello"}}
    capture: {token: 'token (\\w+)'}
    steps:
      - text: "Done {{token}}."
        fault: {kind: hang, after_characters: 2, hang_seconds: 2, times: 2}
"""
    async with servers() as (_, cache, url), open_cluster("slack", url, cache.answer, scenario=scenario) as cluster:
        await cluster.start()
        await cluster.say("Hello", "a1")
        await settle_and_check(cluster)
