"""Clients of the real Redis of a test run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from storage.redis.streams import RedisStreams, create_redis_client


@asynccontextmanager
async def redis_client(url: str) -> AsyncGenerator[tuple[Redis, RedisStreams], None]:
    """A client of an empty server."""
    client = create_redis_client(url)
    await client.flushall()
    streams = RedisStreams(client)
    try:
        yield client, streams
    finally:
        await streams.close()
        await client.aclose()
