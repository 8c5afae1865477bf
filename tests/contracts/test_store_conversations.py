"""The contract of `core.stores.Conversations`, on each database."""

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from core.domain.budget import Budget, PlannedCall, Spent
from core.domain.errors import LeaseLost
from core.domain.threads import Address, Overhear, Position, Selection, Usage
from core.stores import DeliveryDraft, ErasedCounts, JournalEntry, UsageEntry
from storage.sql.tables import METADATA
from tests.contracts.stores import ADDRESS, ALICE, BOB, Stores, accept, added, deciding, message, told
from tests.support.narrow import require


async def test_a_thread_is_made_once(stores: Stores) -> None:
    made = await asyncio.gather(*(stores.conversations.create(ADDRESS) for _ in range(6)))
    assert len({thread.thread_id for thread in made}) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(ADDRESS, platform="discord"),
        replace(ADDRESS, workspace_id="T2"),
        replace(ADDRESS, channel_id="C2"),
        replace(ADDRESS, thread_key="2"),
    ],
)
async def test_each_part_of_an_address_counts(stores: Stores, other: Address) -> None:
    await stores.say("hello")
    assert await stores.conversations.find(other) is None
    assert (await stores.say("hello", address=other)).is_new_run


async def test_a_renewed_address_starts_a_new_thread(stores: Stores) -> None:
    old = await stores.started()
    await stores.journal.write(old, added(old, 1, "remember me"))
    assert not await stores.conversations.unbind(ADDRESS)  # its run could no longer be reached
    await stores.finish(old)
    assert await stores.conversations.unbind(ADDRESS)
    assert await stores.conversations.find(ADDRESS) is None
    new = await stores.say("hello again")
    assert new.thread_id != old.thread_id
    assert new.is_new_run
    assert await stores.stops.request_stop(new.run_id or "")
    assert await stores.conversations.unbind(ADDRESS)
    third = await stores.say("and again")
    assert len({old.thread_id, new.thread_id, third.thread_id}) == 3
    assert len(await stores.conversations.messages(old.thread_id)) == 1
    assert await stores.conversations.snapshot(old.thread_id) is not None


async def test_the_threads_of_an_address_are_those_that_were_begun_by_then(stores: Stores) -> None:
    now = datetime.now(UTC)
    for seconds in (0, 60):
        await stores.say("hello", sent_at=now + timedelta(seconds=seconds))
        lease = require(await stores.claims.claim((await stores.claims.claimable_runs())[0], "w1"))
        assert await stores.finish(lease)
        assert await stores.conversations.unbind(ADDRESS, begun_by=now - timedelta(seconds=1))
        assert await stores.conversations.find(ADDRESS), "it was begun later"
        assert await stores.conversations.unbind(ADDRESS, by=ALICE)
    newest, oldest = await stores.conversations.thread_ids(ADDRESS)
    assert newest > oldest
    assert await stores.conversations.thread_ids(ADDRESS, begun_by=now + timedelta(seconds=30)) == (oldest,)


async def test_what_is_written_once_a_thread_is_found_inactive_starts_a_new_one(stores: Stores) -> None:
    asked, ask_id = await stores.asked()
    later = datetime.now(UTC) + timedelta(hours=1)
    for _ in range(2):  # again, if it could not be deleted
        assert await stores.conversations.unbind_inactive_threads(later, limit=9) == (asked.thread_id,)
    new = await stores.say("a")
    assert new.is_new_run
    assert new.thread_id != asked.thread_id
    assert await stores.conversations.unbind(asked.thread_id)
    assert require(await stores.asks.find_ask(ask_id)).state == "withdrawn"
    await stores.conversations.delete_thread(asked.thread_id)
    assert require(await stores.conversations.find(ADDRESS)).thread.thread_id == new.thread_id


async def test_a_thread_at_work_is_not_inactive_and_a_session_of_a_host_stays_for_a_month(stores: Stores) -> None:
    await stores.say("work")
    session = replace(ADDRESS, platform="api", channel_id="mcp")
    for address in (session, replace(session, channel_id="C1"), replace(session, platform="slack")):
        await stores.conversations.create(address)
    times = (datetime.now(UTC) + timedelta(days=days) for days in (29, 31))
    assert [len(await stores.conversations.unbind_inactive_threads(time, limit=9)) for time in times] == [2, 3]


async def test_a_forgotten_thread_leaves_no_rows_but_what_it_cost_and_who_did_what(stores: Stores) -> None:
    asked, _ = await stores.asked()
    rendering = require(await stores.deliveries.claim(asked.run_id, "w1"))
    lease = await stores.started("again")
    await stores.journal.write(lease, added(lease, 1, "secret"))
    usage = UsageEntry(turn_id="t", model="m", usage=Usage(input_tokens=1))
    await stores.journal.write(lease, JournalEntry(usage=(usage,)))
    await stores.conversations.delete_thread(lease.thread_id)
    counts = {name: await stores.count(f'"{name}"') for name in METADATA.tables}
    kept = {"audit_entry", "claimed_key", "usage", "usage_day", "worker"}
    assert {name for name, rows in counts.items() if rows} == kept
    with pytest.raises(LeaseLost):
        await stores.journal.write(lease, added(lease, 2, "more"))
    with pytest.raises(LeaseLost):
        await stores.deliveries.plan_deliveries(rendering, [])
    assert (await stores.say("hello")).is_new_run


async def test_a_message_of_a_forgotten_thread_that_is_delivered_again_starts_nothing(stores: Stores) -> None:
    receipt = await stores.say("hello", key="m1")
    await stores.conversations.delete_thread(receipt.thread_id or "")
    assert (await stores.say("hello", key="m1")).is_duplicate
    assert await stores.conversations.find(ADDRESS) is None


async def test_what_is_stored_about_a_person_goes_and_the_rest_stays(stores: Stores) -> None:
    lease = await stores.started("my secret", worker="w1")
    await stores.journal.write(
        lease,
        JournalEntry(
            messages=(
                replace(told(lease, "my secret"), type="user", metadata={"author_id": "U1", "author": "alice"}),
                replace(told(lease, "not mine"), type="user", metadata={"author_id": "U2", "author": "bob"}),
                replace(
                    told(lease, '[Said]\n{"from": "alice", "id": "U1"}\n{"from": "bob", "id": "U2"}\n{cut'),
                    type="user",
                    metadata={"sources": {"read": [["chat", "", "2026-01-01T00:00:00+00:00"]]}},
                ),
            ),
            usage=(UsageEntry(turn_id="t", model="m", usage=Usage(input_tokens=5)),),
        ),
    )
    heard = replace(message("lunch?", key="h1"), message_ref="h1", person=BOB)
    await stores.inbox.accept_action(heard, deciding(Overhear(reason="to others")))
    other = replace(ADDRESS, workspace_id="T2")
    elsewhere = replace(message("hello", key="e1"), address=other)
    await stores.inbox.accept_action(elsewhere, accept)
    await stores.conversations.note_earlier_authors(lease.thread_id, {"U1": "alice", "U9": "dana"})
    counts = await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    assert (counts.messages, counts.usage) == (2, 1)
    assert counts.names > 0
    history = await stores.conversations.llm_messages(lease.thread_id)
    contents = [str(one.content["content"]) for one in history]
    assert [("secret" in one, "alice" in one) for one in contents] == [(False, False)] * 3
    assert "not mine" in contents[1]
    assert contents[2] == '[Said]\n{"from": "bob", "id": "U2"}\n{cut'
    thread = require(await stores.conversations.snapshot(lease.thread_id)).thread
    assert thread.earlier_authors == {"U9": "dana"}
    (run,) = await stores.conversations.runs(lease.thread_id)
    assert run.requester is None
    late = datetime.now(UTC) + timedelta(days=1)
    assert [one.author for one in await stores.conversations.unread_talk(lease.thread_id, late)] == [BOB]
    assert (await stores.conversations.usage(thread_id=lease.thread_id)).input_tokens == 5
    there = require(await stores.conversations.find(other))
    assert require(there.last_run).requester == ALICE
    assert await stores.conversations.erase_person(ADDRESS, ALICE.person_id) == ErasedCounts(
        messages=0, names=0, usage=0
    )
    with pytest.raises(LeaseLost):  # the worker remembers the words
        await stores.journal.begin_turn(
            lease, added(lease, 1, "a result"), PlannedCall(Spent(), Budget(), date(2020, 1, 1))
        )
    assert len(await stores.conversations.llm_messages(lease.thread_id)) == 4


async def test_a_message_belongs_to_the_thread_whose_run_it_requested_or_asks_for(stores: Stores) -> None:
    lease = await stores.started()
    request_ref = require(await stores.conversations.run(lease.run_id)).request_ref
    rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
    drafts = [DeliveryDraft(slot="status", body={}), DeliveryDraft(slot="ask", body={})]
    for one in await stores.deliveries.plan_deliveries(rendering, drafts):
        await stores.deliveries.record(rendering, replace(one, state="delivered", message_ref=one.slot))
    channel = replace(ADDRESS, thread_key="")

    async def places(at: Address = channel) -> list[Address | None]:
        return [await stores.conversations.find_run_address(at, ref) for ref in (request_ref, "ask", "status")]

    assert await places() == [ADDRESS, ADDRESS, None]
    for elsewhere in ({"platform": "discord"}, {"workspace_id": "T2"}, {"channel_id": "C2"}):
        assert await places(replace(channel, **elsewhere)) == [None] * 3
    await stores.finish(lease)
    assert await places() == [None] * 3


async def test_the_runs_of_a_person_are_theirs_in_this_workspace_newest_first(stores: Stores) -> None:
    runs = [(await stores.say("one")).run_id]
    elsewhere = replace(ADDRESS, thread_key="200.1")
    runs.append((await stores.say("two", address=elsewhere)).run_id)
    await stores.say("three", address=replace(ADDRESS, thread_key="300.1"), person=BOB)
    await stores.say("four", address=replace(ADDRESS, workspace_id="T2"))
    found = await stores.conversations.runs_of_person("slack", "T1", ALICE.person_id, limit=10)
    assert [run.run_id for run, *_ in found] == runs[::-1]
    assert [(thread.address, request) for _, thread, request in found] == [(elsewhere, "two"), (ADDRESS, "one")]
    assert {*await stores.conversations.unended_runs_of_person(ADDRESS, ALICE.person_id)} == {*runs}
    newest = await stores.conversations.runs_of_person("slack", "T1", ALICE.person_id, limit=1)
    assert newest == found[:1]


async def test_threads_come_with_their_newest_run_and_the_most_recently_active_first(stores: Stores) -> None:
    first = await stores.started()
    await stores.finish(first)
    second = await stores.say("hello", address=replace(ADDRESS, channel_id="C2"), person=BOB)
    await stores.conversations.create(replace(ADDRESS, workspace_id="T2"))
    again = await stores.say("again")

    async def listed(limit: int = 9, before: Position | None = None, **selected: str) -> list[str | None]:
        found = await stores.conversations.newest_threads(Selection(**selected), before=before, limit=limit)
        return [one.run_id for one in found]

    assert await listed() == [again.run_id, None, second.run_id]
    assert await listed(workspace_id="T1") == [again.run_id, second.run_id]
    assert await listed(person_id=BOB.person_id) == [second.run_id]
    assert await listed(person_id=BOB.person_id, channel_id="C1") == []
    (newest,) = await stores.conversations.newest_threads(Selection(), limit=1)
    assert (newest.thread.thread_id, newest.run_status) == (first.thread_id, "queued")
    assert await listed(before=newest.position) == [None, second.run_id]
    runs = await stores.conversations.newest_runs(first.thread_id, limit=9)
    assert [run.run_id for run in runs] == [again.run_id, first.run_id]
    assert await stores.conversations.newest_runs(first.thread_id, before=again.run_id, limit=9) == runs[1:]
    assert await stores.conversations.newest_runs(second.thread_id or "", before=again.run_id, limit=9) == ()
