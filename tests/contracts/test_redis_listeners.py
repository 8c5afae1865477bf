"""Listeners on Redis streams that leave at a bad moment, or raise, leave the others undisturbed."""

import asyncio
from contextlib import suppress

from redis.asyncio import Redis

from storage.redis.streams import Fields, RedisStreams, StreamListener
from tests.contracts.redis_servers import redis_client
from tests.support.waiting import until


def ear(heard: list[Fields]) -> StreamListener:
    return StreamListener(heard.append, lambda: None)


async def listen(streams: RedisStreams, stream: str, heard: list[Fields]) -> None:
    async with streams.listen(stream, ear(heard)):
        await asyncio.Event().wait()


async def blocked_clients(client: Redis) -> int:
    return int((await client.info("clients"))["blocked_clients"])


async def test_who_leaves_while_it_begins_to_listen_hears_nothing_any_more(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        kept: list[Fields] = []
        lost: list[Fields] = []
        async with streams.listen("kept", ear(kept)):
            async with asyncio.timeout(30):
                while await blocked_clients(client) < 1:
                    await asyncio.sleep(0.01)
            await client.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
            beginning = asyncio.ensure_future(listen(streams, "lost", lost))
            async with asyncio.timeout(30):
                while await blocked_clients(client) < 2:
                    await asyncio.sleep(0.01)
            beginning.cancel()
            with suppress(asyncio.CancelledError):
                await beginning
            await client.execute_command("CLIENT", "UNPAUSE")
            await client.xadd("kept", {"n": "1"})
            await until(lambda: bool(kept))  # the reader has begun anew since
            await client.xadd("lost", {"n": "2"})
            await client.xadd("kept", {"n": "3"})
            await until(lambda: len(kept) == 2)
        assert lost == []


async def test_an_error_of_a_listener_does_not_end_the_reading_for_all(redis_url: str) -> None:
    async with redis_client(redis_url) as (client, streams):
        heard: list[Fields] = []
        gaps: list[None] = []

        def on_entry(fields: Fields) -> None:
            heard.append(fields)
            if len(heard) == 1:
                raise LookupError("an entry that the listener does not expect")

        async with streams.listen("stream", StreamListener(on_entry, lambda: gaps.append(None))):
            await client.xadd("stream", {"n": "1"})
            await until(lambda: len(heard) == 1)
            await client.xadd("stream", {"n": "2"})
            await until(lambda: len(heard) == 2 and len(gaps) == 1)
