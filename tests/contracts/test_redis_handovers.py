"""The handovers of many processes, in the real Redis of the test run."""

from collections.abc import AsyncGenerator

import pytest

from storage.redis.run_queue import HANDOVER_SECONDS, RedisHandovers
from storage.redis.streams import create_redis_client
from tests.contracts.redis_servers import redis_client


@pytest.fixture
async def two(redis_url: str) -> AsyncGenerator[tuple[RedisHandovers, RedisHandovers], None]:
    async with redis_client(redis_url) as (client, _streams):
        yield RedisHandovers(client), RedisHandovers(client)


async def test_one_of_two_processes_hands_a_run_over(two: tuple[RedisHandovers, RedisHandovers]) -> None:
    one, other = two
    assert await one.begin("a")
    assert not await other.begin("a")
    assert not await one.begin("a")
    assert await other.begin("b")


async def test_a_handover_is_over_in_a_minute(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, _streams):
        await RedisHandovers(client).begin("a")
        (key,) = await client.keys("*")
        assert HANDOVER_SECONDS - 30 < await client.ttl(key) <= HANDOVER_SECONDS == 60


async def test_whoever_is_done_with_a_run_may_get_it_again(two: tuple[RedisHandovers, RedisHandovers]) -> None:
    one, other = two
    await one.begin("a")
    await other.end("a")
    assert await one.begin("a")


async def test_without_redis_a_process_goes_by_what_it_did_itself(caplog: pytest.LogCaptureFixture) -> None:
    client = create_redis_client("unix:///no/such/socket")
    alone = RedisHandovers(client)
    assert await alone.begin("a")
    assert not await alone.begin("a")
    await alone.end("a")
    assert await alone.begin("a")
    assert "in a minute" in caplog.text
    await client.aclose()
