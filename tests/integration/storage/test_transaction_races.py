"""What one transaction of PostgreSQL does while another changes what it has read."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.contracts.stores import ADDRESS, Stores, stores_over
from tests.databases import opened
from tests.integration.storage.interleaving import played_at


@pytest.fixture
async def stores(postgresql_url: str) -> AsyncIterator[Stores]:
    async with opened(postgresql_url) as database:
        yield stores_over(database)


async def test_a_conversation_that_is_written_to_is_not_inactive(stores: Stores) -> None:
    lease, _ = await stores.asked()
    later = datetime.now(UTC) + timedelta(hours=1)
    find = partial(stores.conversations.inactive, later, limit=9)
    async with played_at("UPDATE pending_ask", stores.database, find) as finding:
        receipt = await stores.say("a")

    assert finding[0].result() == ()
    assert receipt.thread_id == lease.thread_id
    assert await stores.conversations.find(ADDRESS) is not None
