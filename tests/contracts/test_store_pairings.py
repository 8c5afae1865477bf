"""Who was let in by a code, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.domain.pairing import PairingRequest
from core.domain.threads import Person
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores

NOW = datetime.now(UTC)
REQUEST = PairingRequest(
    platform="slack", workspace_id="T1", person=BOB, code_hash="h1", asked_at=NOW, expires_at=NOW + timedelta(hours=1)
)
EXPIRED = replace(REQUEST, expires_at=NOW)


async def pair(stores: Stores, code_hash: str = "h1", workspace_id: str = "T1") -> Person | None:
    return await stores.pairings.pair_person(code_hash, workspace_id=workspace_id, at=ADDRESS, by=ALICE)


async def unpair(stores: Stores, name: str) -> Person | None:
    return await stores.pairings.unpair_person(name, workspace_id="T1", at=ADDRESS, by=ALICE)


async def test_a_code_lets_its_person_in_once(stores: Stores) -> None:
    assert await stores.pairings.request_code(REQUEST, open_max=3)
    assert not await stores.pairings.is_paired("slack", "T1", BOB.person_id)
    assert await pair(stores) == BOB
    assert await stores.pairings.is_paired("slack", "T1", BOB.person_id)
    assert await pair(stores) is None
    (entry,) = await stores.audit.newest_entries(limit=5)
    assert (entry.action, entry.actor, entry.subject) == ("paired", ALICE, "bob (U2)")


async def test_a_pairing_holds_in_its_own_workspace_and_platform(stores: Stores) -> None:
    await stores.pairings.request_code(REQUEST, open_max=3)
    assert await pair(stores, workspace_id="T2") is None
    assert await pair(stores) == BOB
    assert not await stores.pairings.is_paired("slack", "T2", BOB.person_id)
    assert not await stores.pairings.is_paired("discord", "T1", BOB.person_id)
    assert await stores.pairings.paired_people("slack", "T2") == ()


async def test_an_old_code_and_a_wrong_one_let_nobody_in(stores: Stores) -> None:
    await stores.pairings.request_code(EXPIRED, open_max=3)
    assert await pair(stores) is None
    assert await pair(stores, "h2") is None
    assert await stores.audit.newest_entries(limit=5) == ()


async def test_who_has_a_code_gets_no_other_until_it_is_over(stores: Stores) -> None:
    assert await stores.pairings.request_code(EXPIRED, open_max=3)
    assert await stores.pairings.request_code(replace(REQUEST, code_hash="h2"), open_max=3)
    assert not await stores.pairings.request_code(replace(REQUEST, code_hash="h3"), open_max=3)
    assert await pair(stores, "h2") == BOB
    assert not await stores.pairings.request_code(replace(REQUEST, code_hash="h4"), open_max=3)


async def test_so_many_may_wait_and_the_oldest_makes_room(stores: Stores) -> None:
    await stores.pairings.request_code(REQUEST, open_max=2)
    assert await pair(stores) == BOB
    await stores.pairings.request_code(replace(REQUEST, workspace_id="T2", code_hash="elsewhere"), open_max=2)
    for n in range(4):
        waiting = replace(
            REQUEST,
            person=Person(person_id=f"W{n}", name="x"),
            code_hash=f"h{n}",
            asked_at=REQUEST.asked_at + timedelta(seconds=n),
        )
        assert await stores.pairings.request_code(waiting, open_max=2)
    assert [await pair(stores, f"h{n}") is not None for n in range(4)] == [False, False, True, True]
    assert await stores.pairings.is_paired("slack", "T1", BOB.person_id)
    assert await pair(stores, "elsewhere", workspace_id="T2") == BOB


async def test_of_many_who_pair_one_code_at_once_one_succeeds(stores: Stores) -> None:
    await stores.pairings.request_code(REQUEST, open_max=3)
    found = await asyncio.gather(*(pair(stores) for _ in range(6)))
    assert [one for one in found if one] == [BOB]
    assert len(await stores.audit.newest_entries(limit=9)) == 1


async def test_somebody_is_unpaired_by_id_or_by_the_only_name(stores: Stores) -> None:
    twin = Person(person_id="U3", name="Bob")
    for n, person in enumerate((BOB, twin)):
        await stores.pairings.request_code(replace(REQUEST, person=person, code_hash=f"h{n}"), open_max=3)
        await pair(stores, f"h{n}")
    assert await unpair(stores, "bob") is None
    assert await unpair(stores, "U3") == twin
    assert await stores.pairings.paired_people("slack", "T1") == (BOB,)
    assert await unpair(stores, "BOB") == BOB
    assert not await stores.pairings.is_paired("slack", "T1", BOB.person_id)
    (newest, *_) = await stores.audit.newest_entries(limit=9)
    assert (newest.action, newest.subject) == ("unpaired", "bob (U2)")


async def test_whoever_is_forgotten_is_no_longer_named_as_paired(stores: Stores) -> None:
    await stores.pairings.request_code(REQUEST, open_max=3)
    await pair(stores)
    await unpair(stores, "bob")
    elsewhere = replace(ADDRESS, workspace_id="T2")
    assert (await stores.conversations.erase_person(elsewhere, BOB.person_id)).names == 0
    assert (await stores.conversations.erase_person(ADDRESS, BOB.person_id)).names == 2
    entries = await stores.audit.newest_entries(limit=5)
    assert [(one.action, one.subject) for one in entries] == [("unpaired", "forgotten"), ("paired", "forgotten")]
