"""Every write of a run or of its delivery carries the fence: a process that lost its lease changes nothing."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, replace
from datetime import date

import pytest
from sqlalchemy import select

from core.domain.budget import Budget, PlannedCall, Spent
from core.domain.errors import LeaseLost
from core.domain.events import TurnStarted
from core.domain.plans import create_plan
from core.domain.threads import Lease, Usage
from core.stores import Delivery, DeliveryDraft, DeliveryLease, JournalEntry, UsageEntry
from storage.sql.tables import METADATA, deliveries
from tests.contracts.stores import STOPPED, Stores, event
from tests.contracts.test_store_approvals import APPROVAL
from tests.support.narrow import require

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
