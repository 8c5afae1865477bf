"""The servers that tests run against are the real ones, and a machine without them is told apart."""

import asyncio

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.requirements_of_the_machine import REQUIRED_BY, lacking
from tests.servers import postgresql, redis


async def test_redis_is_a_real_server_with_streams() -> None:
    with redis() as url:
        client = Redis.from_url(url)
        await client.xadd("s", {"a": "1"})
        assert await client.xlen("s") == 1
        await client.aclose()
        await client.connection_pool.disconnect()


async def test_postgresql_ends_with_its_context() -> None:
    with postgresql() as url_of:
        connection = await asyncpg.connect(url_of("postgres"))
        assert await connection.fetchval("SELECT 40 + 2") == 42
        await connection.close()
    with pytest.raises(OSError):
        await asyncio.wait_for(asyncpg.connect(url_of("postgres")), 30)


def test_what_a_machine_lacks_is_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED_BY, raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED with redis: there is no wheel"):
        lacking("redis", "there is no wheel")


def test_what_a_machine_was_promised_to_have_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED_BY, "jail, redis")
    with pytest.raises(pytest.fail.Exception, match="redis is required"):
        lacking("redis", "there is no wheel")
    with pytest.raises(pytest.skip.Exception):
        lacking("postgres", "there is no wheel")
