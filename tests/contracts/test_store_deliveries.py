"""The contract of `core.stores.Deliveries`, on each database."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.errors import LeaseLost
from core.domain.threads import Accept, Lease
from core.stores import DeliveryDraft, DeliveryLease
from tests.contracts.stores import ADDRESS, COMPLETED, Stores, deciding
from tests.support.narrow import require

STATUS = DeliveryDraft(slot="status", body={})


async def _showing(stores: Stores, worker: str = "w1") -> tuple[Lease, DeliveryLease]:
    lease = await stores.started()
    rendering = require(await stores.deliveries.claim(lease.run_id, worker))
    return lease, rendering


@pytest.mark.parametrize("is_renewed", [False, True], ids=["of its thread", "of the conversation before"])
async def test_a_run_knows_whether_an_earlier_one_is_still_shown(stores: Stores, *, is_renewed: bool) -> None:
    lease, rendering = await _showing(stores)
    assert await stores.finish(lease)
    if is_renewed:
        assert await stores.conversations.unbind(ADDRESS)
    second = await stores.say("and that")
    other = await stores.say("hello", address=replace(ADDRESS, thread_key="2"))
    assert await stores.deliveries.has_earlier(second.run_id or "")
    assert not await stores.deliveries.has_earlier(lease.run_id)
    assert not await stores.deliveries.has_earlier(other.run_id or "")
    assert await stores.deliveries.close(rendering)
    assert not await stores.deliveries.has_earlier(second.run_id or "")


async def test_runs_of_the_api_are_not_shown(stores: Stores) -> None:
    receipt = await stores.say("hello", address=replace(ADDRESS, platform="api"))
    assert await stores.deliveries.open_runs() == ()
    assert await stores.deliveries.claim(receipt.run_id or "", "w1") is None


async def test_a_worker_shows_what_is_on_its_platforms(stores: Stores) -> None:
    lease = await stores.started()
    assert await stores.deliveries.claim(lease.run_id, "w1", platforms={"discord"}) is None
    assert await stores.deliveries.claim(lease.run_id, "w1", platforms={"slack"}) is not None


async def test_exactly_one_of_many_workers_shows_a_run(stores: Stores) -> None:
    lease = await stores.started()
    claims = await asyncio.gather(*(stores.deliveries.claim(lease.run_id, f"s{n}") for n in range(8)))
    assert sum(claim is not None for claim in claims) == 1


async def test_a_worker_looks_past_what_another_living_one_shows(stores: Stores) -> None:
    lease, _ = await _showing(stores, "w1")
    fresh = await stores.say("hello", address=replace(ADDRESS, thread_key="2"))
    assert await stores.deliveries.open_runs(for_worker="w1") == (lease.run_id, fresh.run_id)
    assert await stores.deliveries.open_runs(for_worker="w2") == (fresh.run_id,)
    assert await stores.deliveries.claim(lease.run_id, "w2") is None
    await stores.silence("w1")
    assert await stores.deliveries.open_runs(for_worker="w2") == (lease.run_id, fresh.run_id)


async def test_a_worker_may_claim_anew_what_it_shows(stores: Stores) -> None:
    lease, old = await _showing(stores, "w1")
    new = require(await stores.deliveries.claim(lease.run_id, "w1"))
    assert new.fence > old.fence
    with pytest.raises(LeaseLost):
        await stores.deliveries.plan_deliveries(old, [STATUS])
    assert len(await stores.deliveries.plan_deliveries(new, [STATUS])) == 1


async def test_a_plan_keeps_what_is_there_and_answers_in_order(stores: Stores) -> None:
    _, rendering = await _showing(stores)
    (status,) = await stores.deliveries.plan_deliveries(rendering, [STATUS])
    attempted = replace(status, state="attempting", body={"kept": True})
    await stores.deliveries.record(rendering, attempted)
    drafts = [
        DeliveryDraft(slot="notice", body={}),
        DeliveryDraft(slot="file", ordinal=1, body={"path": "b"}),
        DeliveryDraft(slot="file", ordinal=0, body={"path": "a"}),
        DeliveryDraft(slot="ask", body={}),
        DeliveryDraft(slot="answer", ordinal=1, body={}),
        DeliveryDraft(slot="answer", ordinal=0, body={}),
        DeliveryDraft(slot="status", body={"kept": False}),
    ]
    planned = await stores.deliveries.plan_deliveries(rendering, drafts)
    assert [(one.slot, one.ordinal) for one in planned] == [
        ("status", 0),
        ("answer", 0),
        ("answer", 1),
        ("ask", 0),
        ("file", 0),
        ("file", 1),
        ("notice", 0),
    ]
    assert planned[0] == attempted
    assert {one.state for one in planned[1:]} == {"pending"}


async def test_a_record_keeps_everything(stores: Stores) -> None:
    _, rendering = await _showing(stores)
    (status,) = await stores.deliveries.plan_deliveries(rendering, [STATUS])
    failed = replace(status, state="failed", message_ref="p1", error="not_in_channel", body={"text": "x"})
    await stores.deliveries.record(rendering, failed)
    assert await stores.deliveries.plan_deliveries(rendering, []) == (failed,)


@pytest.mark.parametrize("state", ["delivered", "failed"])
async def test_a_run_is_closed_once_it_is_over_and_shown(stores: Stores, state: str) -> None:
    lease, rendering = await _showing(stores)
    (status,) = await stores.deliveries.plan_deliveries(rendering, [STATUS])
    ended = replace(status, state=state)
    await stores.deliveries.record(rendering, ended)
    assert not await stores.deliveries.close(rendering)
    draft = DeliveryDraft(slot="answer", body={"text": "done"})
    assert await stores.finish(lease, replace(COMPLETED, deliveries=(draft,)))
    assert not await stores.deliveries.close(rendering)
    (_, answer) = await stores.deliveries.plan_deliveries(rendering, [])
    await stores.deliveries.record(rendering, replace(answer, state="delivered"))
    assert await stores.deliveries.close(rendering)
    assert await stores.deliveries.open_runs() == ()
    assert await stores.deliveries.claim(lease.run_id, "w2") is None
    with pytest.raises(LeaseLost):
        await stores.deliveries.record(rendering, answer)


async def test_a_record_that_is_repeated_stays_stale(stores: Stores) -> None:
    """The first reply of the database was lost, and the ask was answered before the first write."""
    lease, ask_id = await stores.asked()
    rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
    (ask,) = [one for one in await stores.deliveries.plan_deliveries(rendering, []) if one.slot == "ask"]
    await stores.deliveries.record(rendering, replace(ask, state="attempting"))
    await stores.say("the first", decide=deciding(Accept(ask_id=ask_id)))
    delivered = replace(ask, state="delivered", message_ref="p1")
    for _ in range(2):
        await stores.deliveries.record(rendering, delivered, was="attempting")
        (now,) = [one for one in await stores.deliveries.plan_deliveries(rendering, []) if one.slot == "ask"]
        assert now.state == "stale"
    await stores.deliveries.record(rendering, delivered, was="stale")
    (now,) = [one for one in await stores.deliveries.plan_deliveries(rendering, []) if one.slot == "ask"]
    assert now.state == "delivered"


async def test_another_runs_delivery_is_not_touched(stores: Stores) -> None:
    _, mine = await _showing(stores)
    (status,) = await stores.deliveries.plan_deliveries(mine, [STATUS])
    other = await stores.say("hi", address=replace(ADDRESS, thread_key="2"))
    theirs = require(await stores.deliveries.claim(other.run_id or "", "w1"))
    await stores.deliveries.record(theirs, replace(status, state="failed"))
    assert await stores.deliveries.plan_deliveries(mine, []) == (status,)


async def test_a_refused_question_of_a_run_that_goes_on_stays_refused(stores: Stores) -> None:
    """Its own delivery decides about it, and Retry is for runs that have ended."""
    lease, rendering = await _showing(stores)
    (ask,) = await stores.deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="ask", body={})])
    await stores.deliveries.record(rendering, replace(ask, state="failed", error="is_archived"))
    assert not await stores.deliveries.reopen_delivery(lease.run_id)
    assert [one.state for one in await stores.deliveries.plan_deliveries(rendering, [])] == ["failed"]
    assert await stores.finish(lease)
    assert await stores.deliveries.reopen_delivery(lease.run_id)
    assert not await stores.deliveries.reopen_delivery("no such run")


async def test_a_refused_file_of_the_sandbox_is_a_result_and_a_text_file_is_none(stores: Stores) -> None:
    lease, rendering = await _showing(stores)
    drafts = [
        DeliveryDraft(slot="file", body={"path": "a"}),
        DeliveryDraft(slot="file", ordinal=1000, body={"name": "answer.md"}),
    ]
    assert await stores.finish(lease, replace(COMPLETED, deliveries=tuple(drafts)))
    file, text_file = await stores.deliveries.plan_deliveries(rendering, [])
    for refused, is_reopened in ((text_file, False), (file, True)):
        failed = replace(refused, state="failed", error="is_archived")
        await stores.deliveries.record(rendering, failed)
        assert await stores.deliveries.reopen_delivery(lease.run_id) is is_reopened


async def test_refused_messages_are_made_pending_again(stores: Stores) -> None:
    lease, rendering = await _showing(stores)
    assert not await stores.deliveries.reopen_delivery(lease.run_id)
    (status,) = await stores.deliveries.plan_deliveries(rendering, [STATUS])
    await stores.deliveries.record(rendering, replace(status, state="failed", error="is_archived"))
    assert not await stores.deliveries.reopen_delivery(lease.run_id)  # a status alone is no result
    drafts = (
        DeliveryDraft(slot="answer", body={"text": "done"}),
        DeliveryDraft(slot="file", ordinal=1, body={"path": "a"}),
        DeliveryDraft(slot="notice", body={}),
    )
    assert await stores.finish(lease, replace(COMPLETED, deliveries=drafts))
    _, answer, file, notice = await stores.deliveries.plan_deliveries(rendering, [])
    for refused in (answer, file, notice):
        await stores.deliveries.record(rendering, replace(refused, state="failed", error="is_archived"))
    assert await stores.deliveries.close(rendering)
    assert await stores.deliveries.claim(lease.run_id, "w1") is None
    assert await stores.deliveries.reopen_delivery(lease.run_id)
    again = require(await stores.deliveries.claim(lease.run_id, "w1"))
    planned = await stores.deliveries.plan_deliveries(again, [])
    assert [(one.slot, one.state, one.error) for one in planned] == [
        ("status", "pending", None),
        ("answer", "pending", None),
        ("file", "pending", None),
    ]
    assert not await stores.deliveries.reopen_delivery(lease.run_id)
