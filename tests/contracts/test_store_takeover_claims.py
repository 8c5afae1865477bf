"""Claims of take-over links, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.domain.threads import Address
from core.stores import TakeoverClaim
from tests.contracts.stores import Stores, stores_over

NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(minutes=30)
CLAIM = TakeoverClaim(link_key="k1", thread_id="t1", cookie_hash="alice", expires_at=LATER, used_at=NOW)


async def test_the_first_of_several_concurrent_claims_wins(stores: Stores) -> None:
    people = [replace(CLAIM, cookie_hash=f"person {number}") for number in range(6)]
    results = await asyncio.gather(*map(stores.takeover_claims.claim, people))
    winners = [person for person, is_first in zip(people, results, strict=True) if is_first]
    assert len(winners) == 1
    assert await stores.takeover_claims.find("k1") == winners[0]


async def test_a_claim_ends_once_and_is_not_claimed_again(stores: Stores) -> None:
    await stores.takeover_claims.claim(CLAIM)
    ends = await asyncio.gather(*(stores.takeover_claims.end("k1") for _ in range(4)))
    assert sorted(ends) == [False, False, False, True]
    assert await stores.takeover_claims.find("k1") == replace(CLAIM, is_ended=True)
    assert not await stores.takeover_claims.claim(replace(CLAIM, cookie_hash="bob"))
    assert not await stores.takeover_claims.end("k2")


async def test_a_forgotten_thread_ends_its_claims(stores: Stores) -> None:
    address = Address(platform="slack", workspace_id="T", channel_id="C", thread_key="1.2")
    thread = await stores.conversations.create(address)
    mine = replace(CLAIM, thread_id=thread.thread_id)
    other = replace(CLAIM, link_key="k2")
    await stores.takeover_claims.claim(mine)
    await stores.takeover_claims.claim(other)
    await stores.conversations.delete_thread(thread.thread_id)
    assert await stores.takeover_claims.find("k1") == replace(mine, is_ended=True)
    assert await stores.takeover_claims.find("k2") == other


async def test_a_restarted_process_finds_every_active_claim(stores: Stores) -> None:
    for key in ("k1", "k2", "k3"):
        await stores.takeover_claims.claim(replace(CLAIM, link_key=key))
    await stores.takeover_claims.end("k2")
    restarted = stores_over(stores.database).takeover_claims
    assert {claim.link_key for claim in await restarted.active_claims()} == {"k1", "k3"}


async def test_the_last_use_only_moves_forward(stores: Stores) -> None:
    await stores.takeover_claims.claim(CLAIM)
    newer = NOW + timedelta(minutes=5)
    await stores.takeover_claims.record_use("k1", newer)
    await stores.takeover_claims.record_use("k1", NOW + timedelta(minutes=1))
    assert await stores.takeover_claims.find("k1") == replace(CLAIM, used_at=newer)


async def test_claims_of_links_that_expired_a_day_ago_are_deleted(stores: Stores) -> None:
    just_expired = datetime.now(UTC) - timedelta(hours=1)
    long_expired = datetime.now(UTC) - timedelta(days=1, minutes=1)
    await stores.takeover_claims.claim(replace(CLAIM, expires_at=just_expired))
    await stores.takeover_claims.claim(replace(CLAIM, link_key="k2", expires_at=long_expired))
    assert [claim.link_key for claim in await stores.takeover_claims.active_claims()] == ["k1"]
    assert await stores.takeover_claims.find("k2") is None
