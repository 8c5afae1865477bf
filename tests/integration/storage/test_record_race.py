"""What one statement records of a delivery while another transaction of PostgreSQL changes what it depends on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Connection, text

from core.domain.errors import LeaseLost
from core.failpoints import Failpoint
from core.stores import Delivery, DeliveryDraft, DeliveryLease
from core.tasks import spawn
from storage.sql.database import Database
from tests.contracts.stores import Stores, stores_over
from tests.databases import opened
from tests.support.narrow import require

TEST = Failpoint("test.record")
LOCK = text("SELECT 1 FROM rendering WHERE run_id = :run FOR UPDATE")
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


@asynccontextmanager
async def posting(url: str) -> AsyncGenerator[tuple[Database, Stores, DeliveryLease, Delivery], None]:
    """A post is under way."""
    async with opened(url) as database:
        stores = stores_over(database)
        lease = await stores.started()
        rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
        planned = await stores.deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="status", body={})])
        attempting = replace(planned[0], state="attempting")
        await stores.deliveries.record(rendering, attempting)
        yield database, stores, rendering, replace(attempting, state="delivered", message_ref="p1")


async def recorded_while(
    change: str, database: Database, stores: Stores, rendering: DeliveryLease, delivery: Delivery
) -> None:
    """Records the delivery. What is changed is changed before, and stored only while the record waits for it."""
    is_changed = asyncio.Event()

    def work(connection: Connection) -> None:
        connection.execute(LOCK, {"run": rendering.run.run_id}).close()
        connection.execute(text(change), {"run": rendering.run.run_id})
        is_changed.set()
        while not connection.execute(WAITING).scalar_one():
            connection.execute(text("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")).close()

    changing = spawn(database.write(TEST, work), name="change")
    await is_changed.wait()
    try:
        await stores.deliveries.record(rendering, delivery)
    finally:
        await changing


async def test_what_was_outdated_while_it_was_recorded_becomes_stale(postgresql_url: str) -> None:
    outdated = "UPDATE delivery SET is_outdated = true WHERE run_id = :run"
    async with posting(postgresql_url) as (database, stores, rendering, delivery):
        await recorded_while(outdated, database, stores, rendering, delivery)
        (found,) = await stores.deliveries.plan_deliveries(rendering, [])
        assert (found.state, found.message_ref) == ("stale", "p1")


async def test_whoever_lost_the_run_while_recording_records_nothing(postgresql_url: str) -> None:
    taken = "UPDATE rendering SET fence = fence + 1, worker_id = 'w2' WHERE run_id = :run"
    async with posting(postgresql_url) as (database, stores, rendering, delivery):
        with pytest.raises(LeaseLost):
            await recorded_while(taken, database, stores, rendering, delivery)
        with pytest.raises(LeaseLost):
            await stores.deliveries.plan_deliveries(rendering, [])
        now = replace(rendering, fence=rendering.fence + 1, worker_id="w2")
        (found,) = await stores.deliveries.plan_deliveries(now, [])
        assert (found.state, found.message_ref) == ("attempting", None)
