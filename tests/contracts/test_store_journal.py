"""The contract of `core.stores.RunJournal`, on each database."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, replace
from datetime import date

import pytest
from sqlalchemy import select

from core.domain.budget import Budget, PlannedCall, Spent
from core.domain.errors import LeaseLost
from core.domain.events import MessageAdded, RunFinished, ToolStarted, TurnStarted
from core.domain.plans import create_plan
from core.domain.threads import Lease, ToolCallRecord, Usage
from core.stores import Delivery, DeliveryDraft, DeliveryLease, JournalEntry, RunResult, UsageEntry
from storage.sql.tables import METADATA, deliveries
from tests.contracts.stores import ADDRESS, BOB, COMPLETED, FAILED, STOPPED, Stores, added, asking, event, told
from tests.contracts.test_store_asks import APPROVAL
from tests.support.narrow import require


def _call(lease: Lease, index: int, turn_id: str = "t1") -> ToolCallRecord:
    return ToolCallRecord(
        run_id=lease.run_id,
        turn_id=turn_id,
        index=index,
        call_id="call_0",
        name="shell",
        arguments={"command": "ls"},
        raw="{}",
        assistant_message_id="m1",
    )


async def test_a_message_comes_back_as_it_was_written(stores: Stores) -> None:
    lease = await stores.started()
    sent = replace(
        told(lease, "naïve 数据 👩‍👩‍👧 \0 \ud83d"),
        content={"role": "user", "content": [{"a": None, "b": [1.5, True, 2**60]}], "z": {}, "a": ""},
        metadata={"raw": "tab\t \0 \ud83d"},
        token_count=7,
        agent_id="agent",
        agent_version_id="v1",
    )
    await stores.journal.write(lease, JournalEntry(messages=(sent,)))
    (stored,) = await stores.conversations.messages(lease.thread_id)
    assert stored == replace(sent, sequence=1)
    assert list(stored.content) == list(sent.content)


async def test_a_number_that_json_lacks_is_stored_as_none_beside_half_a_pair(stores: Stores) -> None:
    lease = await stores.started()
    sent = replace(told(lease, ""), metadata={"raw": "\ud83d", "share": float("nan")})
    await stores.journal.write(lease, JournalEntry(messages=(sent,)))
    (stored,) = await stores.conversations.messages(lease.thread_id)
    assert stored.metadata == {"raw": "\ud83d", "share": None}


async def test_history_holds_what_a_model_sees(stores: Stores) -> None:
    lease = await stores.started()
    seen = told(lease, "seen")
    status = replace(told(lease, "status"), type="status", is_llm_message=False)
    await stores.journal.write(lease, JournalEntry(messages=(seen, status)))
    history = await stores.conversations.llm_messages(lease.thread_id)
    assert [one.message_id for one in history] == [seen.message_id]
    everything = await stores.conversations.messages(lease.thread_id)
    assert len(everything) == 2
    assert await stores.conversations.messages(lease.thread_id, after_sequence=1) == everything[1:]
    assert await stores.conversations.messages(lease.thread_id, limit=1) == everything[:1]


async def test_an_entry_that_fails_in_the_middle_leaves_nothing(stores: Stores) -> None:
    lease = await stores.started()
    await stores.journal.write(lease, added(lease, 1, "kept"))
    clashing = added(lease, 1, "lost")
    with pytest.raises(Exception, match=r"(?i)unique"):
        await stores.journal.write(lease, clashing)
    kept = await stores.conversations.messages(lease.thread_id)
    assert [one.content["content"] for one in kept] == ["kept"]
    await stores.journal.write(lease, added(lease, 2, "next"))
    assert [m.sequence for m in await stores.conversations.messages(lease.thread_id)] == [1, 2]


async def test_taken_inputs_are_not_offered_again(stores: Stores) -> None:
    lease = await stores.started("one")
    (first,) = await stores.journal.read_inputs(lease)
    await stores.say("two")
    entry = replace(added(lease, 1, "one"), taken_input_ids=(first.input_id,))
    await stores.journal.write(lease, entry)
    assert [one.text for one in await stores.journal.read_inputs(lease)] == ["two"]


async def test_calls_are_told_in_the_order_they_started(stores: Stores) -> None:
    lease = await stores.started()
    calls = [_call(lease, 0), _call(lease, 1), _call(lease, 0, "t2")]
    await stores.journal.write(lease, JournalEntry(started=tuple(calls[:2])))
    await stores.journal.write(lease, JournalEntry(started=tuple(calls[2:])))
    done = replace(calls[1], state="finished", result={"success": True, "output": "x"}, metadata={"k": 1})
    await stores.journal.write(lease, JournalEntry(finished=(done,)))
    assert await stores.journal.tool_call_records(lease.run_id) == (calls[0], done, calls[2])


async def test_a_call_that_starts_again_is_one_call(stores: Stores) -> None:
    lease = await stores.started()
    await stores.journal.write(lease, JournalEntry(started=(_call(lease, 0),)))
    await stores.journal.write(lease, JournalEntry(started=(_call(lease, 0), _call(lease, 1))))
    assert len(await stores.journal.tool_call_records(lease.run_id)) == 2


async def test_events_come_back_in_order_of_attempt_and_number(stores: Stores) -> None:
    first = await stores.started(worker="w1")
    whole = told(first, "hello")
    early = (
        event(first, 1, TurnStarted(turn_id="t", number=1)),
        event(first, 10, MessageAdded(message=whole)),
        event(first, 9, ToolStarted(index=0, call_id="c", name="shell", title="\0 👋")),
    )
    await stores.journal.write(first, JournalEntry(messages=(whole,), events=early))
    await stores.claims.release(first)
    second = require(await stores.claims.claim(first.run_id, "w1"))
    late = event(second, 1, RunFinished(status="completed", finish_reason="stop"))
    await stores.journal.write(second, JournalEntry(events=(late,)))
    events = await stores.conversations.events(first.run_id)
    assert [str(one.cursor) for one in events] == ["1-1", "1-9", "1-10", "2-1"]
    assert events[1] == early[2]
    assert events[2] == replace(
        early[1], event=MessageAdded(message=replace(whole, sequence=1)), message_id=whole.message_id
    )
    after = await stores.conversations.events(first.run_id, after=events[1].cursor)
    assert after == events[2:]


async def test_a_sandbox_is_remembered_with_the_thread_and_a_delivery_is_planned(stores: Stores) -> None:
    lease = await stores.started()
    draft = DeliveryDraft(slot="notice", body={})
    await stores.journal.write(lease, JournalEntry(sandbox_id="box-1", deliveries=(draft,)))
    assert await stores.count("delivery") == 1
    assert require(await stores.conversations.snapshot(lease.thread_id)).thread.sandbox_id == "box-1"


async def test_a_waiting_input_keeps_a_run_from_completing(stores: Stores) -> None:
    lease = await stores.started("one")
    taken = tuple(one.input_id for one in await stores.journal.read_inputs(lease))
    await stores.say("wait, also this")
    entry = replace(added(lease, 1, "done"), taken_input_ids=taken)
    assert not await stores.journal.finish(lease, entry, COMPLETED)
    assert await stores.conversations.messages(lease.thread_id) == ()
    assert len(await stores.journal.read_inputs(lease)) == 2
    assert await stores.finish(lease)


@pytest.mark.parametrize("ending", [STOPPED, FAILED])
async def test_a_run_that_stops_or_fails_leaves_a_waiting_input_to_a_new_run(stores: Stores, ending: RunResult) -> None:
    lease = await stores.started("one")
    taken = tuple(one.input_id for one in await stores.journal.read_inputs(lease))
    await stores.say("two", key="m2", person=BOB)
    assert await stores.journal.finish(lease, JournalEntry(taken_input_ids=taken), ending)
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.thread.state == "running"
    assert snapshot.active_run is not None
    assert snapshot.active_run.run_id != lease.run_id
    assert snapshot.active_run.requester == BOB
    assert snapshot.active_run.request_ref == "m2"
    assert await stores.claims.claimable_runs() == (snapshot.active_run.run_id,)


async def test_a_message_at_the_moment_of_the_end_is_never_lost(stores: Stores) -> None:
    for _ in range(10):
        lease = await stores.started("one")
        receipt, has_ended = await asyncio.gather(stores.say("two"), stores.finish(lease))
        if has_ended and receipt.run_id == lease.run_id:
            taken = await stores.count("thread_input WHERE taken_by IS NULL")
            assert taken == 0
        elif has_ended:
            assert receipt.is_new_run
            assert await stores.finish(require(await stores.claims.claim(receipt.run_id or "", "w1")))
        else:
            assert await stores.finish(lease)


async def test_an_ask_leaves_the_thread_waiting(stores: Stores) -> None:
    lease = await stores.started()
    assert await stores.finish(lease, asking("Which one?"))
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.thread.state == "waiting"
    ask = require(await stores.asks.ask_of_run(lease.run_id))
    assert ask == snapshot.open_ask
    assert ask == await stores.asks.find_ask(ask.ask_id)
    assert (ask.text, ask.options, ask.state) == ("Which one?", ("a", "b"), "open")
    rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
    (delivery,) = await stores.deliveries.plan_deliveries(rendering, [])
    assert delivery.body == {"text": "Which one?", "ask_id": ask.ask_id}


ANSWER = DeliveryDraft(slot="answer", body={"text": "late"})


def entry(lease: Lease) -> JournalEntry:
    return JournalEntry(
        events=(event(lease, 1, TurnStarted(turn_id="late", number=1)),),
        usage=(UsageEntry(turn_id="late", model="late", usage=Usage(input_tokens=1)),),
        deliveries=(ANSWER,),
    )


async def recorded(stores: Stores, lease: Lease, shown: DeliveryLease) -> None:
    found = select(deliveries.c.delivery_id).where(deliveries.c.run_id == lease.run_id)
    delivery_id = await stores.database.read(lambda c: c.execute(found).scalar_one())
    sent = Delivery(
        delivery_id=delivery_id, run_id=lease.run_id, slot="answer", ordinal=0, body={"text": "late"}, state="delivered"
    )
    await stores.deliveries.record(shown, sent)


PLANNED = PlannedCall(Spent(), Budget(), date(2020, 1, 1))
Write = Callable[[Stores, Lease, DeliveryLease], Awaitable[object]]
WRITES: dict[str, Write] = {
    "claims.release": lambda s, run, _: s.claims.release(run),
    "journal.read_inputs": lambda s, run, _: s.journal.read_inputs(run, entry(run)),
    "journal.begin_turn": lambda s, run, _: s.journal.begin_turn(run, entry(run), PLANNED),
    "journal.write": lambda s, run, _: s.journal.write(run, entry(run)),
    "journal.finish": lambda s, run, _: s.journal.finish(run, entry(run), STOPPED),
    "journal.suspend_run": lambda s, run, _: s.journal.suspend_run(run, entry(run), APPROVAL),
    "plans.change": lambda s, run, _: s.plans.change(
        run.thread_id, lambda known: create_plan(known, "late", "Late", ("Go",)), lease=run
    ),
    "deliveries.plan_deliveries": lambda s, _, shown: s.deliveries.plan_deliveries(
        shown, (replace(ANSWER, ordinal=9),)
    ),
    "deliveries.record": lambda s, run, shown: recorded(s, run, shown),
    "deliveries.close": lambda s, _, shown: s.deliveries.close(shown),
}


def test_each_method_that_takes_a_lease_is_tested_here() -> None:
    found = {
        f"{store.name}.{name}"
        for store in fields(Stores)
        if inspect.isclass(store.type)
        for name, method in inspect.getmembers(store.type, inspect.iscoroutinefunction)
        if "Lease" in str(list(inspect.signature(method).parameters.values()))
    }
    assert found == set(WRITES)


async def everything(stores: Stores) -> dict[str, list[tuple[object, ...]]]:
    return await stores.database.read(
        lambda c: {
            table.name: sorted(map(tuple, c.execute(select(table))), key=str)
            for table in METADATA.sorted_tables
            if table.name != "worker"
        }
    )


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_a_process_that_lost_its_lease_writes_nothing(stores: Stores, name: str) -> None:
    lost = await stores.started()
    shown = require(await stores.deliveries.claim(lost.run_id, "w1"))
    await stores.deliveries.plan_deliveries(shown, (ANSWER,))
    await stores.silence("w1")
    assert await stores.claims.claim(lost.run_id, "w2") is not None
    assert await stores.deliveries.claim(lost.run_id, "w2") is not None
    before = await everything(stores)
    with suppress(LeaseLost):
        await WRITES[name](stores, lost, shown)
    assert await everything(stores) == before


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_the_process_that_holds_it_does(stores: Stores, name: str) -> None:
    lease = await stores.started()
    shown = require(await stores.deliveries.claim(lease.run_id, "w1"))
    await stores.deliveries.plan_deliveries(shown, (ANSWER,))
    if name == "deliveries.close":
        await recorded(stores, lease, shown)
        await stores.execute("UPDATE run SET status = 'completed'")
    before = await everything(stores)
    await WRITES[name](stores, lease, shown)
    assert await everything(stores) != before
