"""What one transaction of PostgreSQL does while another changes what it has read."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from core.domain.messages import Message
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, ALICE, Stores, stores_over
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


async def test_what_a_run_takes_up_while_its_author_is_forgotten_is_removed(
    stores: Stores,
) -> None:
    lease = await stores.started("secret")
    (one,) = await stores.journal.inputs(lease)
    said = Message(
        type="user",
        content={"role": "user", "content": "secret"},
        is_llm_message=True,
        thread_id=lease.thread_id,
        run_id=lease.run_id,
        metadata={"author_id": ALICE.person_id},
    )
    entry = JournalEntry(messages=(said,), taken_input_ids=(one.input_id,))
    take = partial(stores.journal.write, lease, entry)
    async with played_at("DELETE FROM thread_input", stores.database, take):
        counts = await stores.conversations.erase_person(ADDRESS, ALICE.person_id)

    assert counts.messages == 1
    (kept,) = await stores.conversations.history(lease.thread_id)
    assert "secret" not in str(kept.content)
