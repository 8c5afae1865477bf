"""The stores of one process share its database connections."""

import asyncio

import asyncpg

from bots.bootstrap.process_messaging import Messaging
from bots.bootstrap.stores import DELIVERY_TRANSACTIONS_MAX, Stores
from core.tasks import cancel, spawn
from storage.sql.database import open_database

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
PATIENCE_SECONDS = 30.0


async def test_a_message_is_stored_while_every_delivery_waits_for_the_database(postgresql_url: str) -> None:
    database = await open_database(postgresql_url)
    stores = Stores(database, Messaging())
    other = await asyncpg.connect(postgresql_url)
    waiting: list[asyncio.Task[bool]] = []
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with other.transaction():
                await other.execute("LOCK TABLE rendering IN ACCESS EXCLUSIVE MODE")
                waiting = [
                    spawn(stores.deliveries.has_earlier(f"r{number}"), name="a delivery") for number in range(30)
                ]
                while await other.fetchval(BLOCKED) < DELIVERY_TRANSACTIONS_MAX:
                    await asyncio.sleep(0.01)
                assert not await stores.inbox.is_key_claimed("a message")
                assert not any(one.done() for one in waiting)
            assert await asyncio.gather(*waiting) == [False] * 30
    finally:
        for one in waiting:
            await cancel(one)
        await other.close()
        await database.close()
