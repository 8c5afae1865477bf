"""Workspaces that installed the bot, and who was let in by a code, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.domain.installations import Installation
from core.domain.pairing import PairingRequest
from core.domain.threads import Person
from tests.contracts.stores import ADDRESS, ALICE, BOB, FAILED, Stores, accept, message
from tests.support.narrow import require

HERE = Installation(platform="slack", workspace_id="T1", sealed_token="sealed", facts={"bot_id": "B1"})


async def acts(stores: Stores) -> list[str]:
    found = await stores.audit.newest_entries(limit=20, platform="slack")
    return [one.action for one in reversed(found) if one.action.startswith("workspace")]


async def test_the_newest_installation_of_a_workspace_counts(stores: Stores) -> None:
    assert await stores.installations.find("slack", "T1") is None
    await stores.installations.save(HERE, by=ALICE)
    again = replace(HERE, sealed_token="other", facts={"bot_id": "B2"})
    await stores.installations.save(again, by=ALICE)
    assert await stores.installations.find("slack", "T1") == again
    assert await stores.installations.find("slack", "T2") is None
    assert await stores.installations.find("discord", "T1") is None
    assert await acts(stores) == ["workspace_joined", "workspace_joined"]


async def test_a_token_is_replaced_where_it_is_still_the_same(stores: Stores) -> None:
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.replace_sealed_token(HERE, "newer")
    assert not await stores.installations.replace_sealed_token(HERE, "too late")
    assert not await stores.installations.replace_sealed_token(replace(HERE, workspace_id="T2"), "x")
    assert await stores.installations.find("slack", "T1") == replace(HERE, sealed_token="newer")


async def test_who_leaves_takes_the_token_and_names_its_own_open_runs(stores: Stores) -> None:
    await stores.installations.save(HERE, by=ALICE)
    open_run = await stores.say("work")
    elsewhere = replace(message("work", key="k2"), address=replace(ADDRESS, workspace_id="T2", thread_key="9"))
    await stores.inbox.accept_action(elsewhere, accept)
    assert await stores.installations.leave_workspace("slack", "T1") == (open_run.run_id,)
    assert await stores.installations.find("slack", "T1") is None
    lease = require(await stores.claims.claim(open_run.run_id or "", "w1"))
    await stores.finish(lease, FAILED)
    assert await stores.installations.leave_workspace("slack", "T1") == ()
    assert await acts(stores) == ["workspace_joined", "workspace_left"]


ORGANISATION = replace(HERE, workspace_id="E1", sealed_token="of all")


async def test_a_workspace_joins_with_its_organisation(stores: Stores) -> None:
    assert not await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") is None
    await stores.installations.save(ORGANISATION, by=ALICE)
    assert await stores.installations.find("slack", "T1") is None, "it has not joined"
    for _ in range(2):
        assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == ORGANISATION
    assert await stores.installations.find("slack", "T2") is None
    assert not await stores.installations.join_organisation("slack", "T2", "T1"), "T1 is no organisation"
    assert await acts(stores) == ["workspace_joined", "workspace_joined"]


async def test_the_installation_of_a_workspace_itself_goes_first(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == HERE
    await stores.installations.leave_workspace("slack", "T1")
    assert await stores.installations.find("slack", "T1") is None
    assert await stores.installations.join_organisation("slack", "T1", "E1")
    assert await stores.installations.find("slack", "T1") == ORGANISATION
    await stores.installations.save(HERE, by=ALICE)
    assert await stores.installations.find("slack", "T1") == HERE


async def test_an_organisation_leaves_with_those_who_joined_by_it(stores: Stores) -> None:
    await stores.installations.save(ORGANISATION, by=ALICE)
    await stores.installations.save(replace(ORGANISATION, workspace_id="E2"), by=ALICE)
    for team_id, organisation_id in (("T1", "E1"), ("T2", "E1"), ("T4", "E2")):
        assert await stores.installations.join_organisation("slack", team_id, organisation_id)
    own = replace(HERE, workspace_id="T3", facts={"organisation_id": "E1"})
    await stores.installations.save(own, by=ALICE)
    runs: dict[str, str] = {}
    for number, team_id in enumerate(("T1", "T2", "T3", "T4")):
        address = replace(ADDRESS, workspace_id=team_id)
        work = replace(message("work", key=f"k{number}"), address=address)
        accepted = await stores.inbox.accept_action(work, accept)
        runs[team_id] = accepted.run_id or ""
    assert set(await stores.installations.leave_workspace("slack", "E1")) == {runs["T1"], runs["T2"]}
    found = [await stores.installations.find("slack", team_id) for team_id in runs]
    assert [one and one.workspace_id for one in found] == [None, None, "T3", "E2"]
    assert (await acts(stores))[-3:] == ["workspace_left"] * 3


async def test_a_workspace_talks_where_it_has_had_a_conversation(stores: Stores) -> None:
    await stores.say("work")
    talks = [
        await stores.installations.has_threads_in("slack", workspace_id, channel_id)
        for workspace_id, channel_id in (("T1", ADDRESS.channel_id), ("T1", "C9"), ("T2", "C1"))
    ]
    assert talks == [True, False, False]


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
