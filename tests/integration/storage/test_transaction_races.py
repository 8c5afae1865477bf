"""What one transaction of PostgreSQL does while another changes what it has read."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from core.domain.messages import Message
from core.domain.threads import Address, Lease
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, ALICE, Stores, stores_over
from tests.contracts.test_store_approvals import APPROVAL
from tests.databases import opened
from tests.integration.storage.interleaving import played_at


@pytest.fixture
async def stores(postgresql_url: str) -> AsyncIterator[Stores]:
    async with opened(postgresql_url) as database:
        yield stores_over(database)


async def waiting(stores: Stores, address: Address) -> Lease:
    """A run that waits for an approval."""
    receipt = await stores.say("deploy", address=address)
    lease = await stores.claims.claim(receipt.run_id or "", "w1")
    assert lease is not None
    await stores.journal.suspend(lease, JournalEntry(), APPROVAL)
    return lease


async def test_an_approval_that_is_forgotten_holds_up_no_other_that_is_old(stores: Stores) -> None:
    first = await waiting(stores, ADDRESS)
    second = await waiting(stores, replace(ADDRESS, thread_key="2"))
    forget = partial(stores.conversations.forget, first.thread_id)
    found = "SELECT pending_ask.*created_at <"
    async with played_at(found, stores.database, forget, is_after=True):
        expired = await stores.asks.expire_approvals(older_than_hours=0)

    assert expired == (second.run_id,)


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
