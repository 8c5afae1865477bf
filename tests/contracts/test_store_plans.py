"""The plans of a thread, on each database."""

import asyncio

import pytest

from core.domain.errors import LeaseLost
from core.domain.plans import LeaseCheckedPlans, Plan, Plans, Step, create_plan, delete_plan, mark_step
from tests.contracts.stores import Stores


async def test_plans_come_back_as_they_were_left(stores: Stores) -> None:
    lease = await stores.started()
    made = await stores.plans.change(lease.thread_id, lambda known: create_plan(known, "p", "Trip", ("Look", "Go")))
    assert await stores.plans.change(lease.thread_id, lambda known: known) == made
    await stores.plans.change(lease.thread_id, lambda known: delete_plan(known, "p"))
    assert await stores.plans.change(lease.thread_id, lambda known: known) == ()


async def test_changes_at_once_are_all_kept(stores: Stores) -> None:
    lease = await stores.started()
    steps = tuple(str(number) for number in range(5))
    await stores.plans.change(lease.thread_id, lambda known: create_plan(known, "p", "Trip", steps))

    async def done(index: int) -> Plans:
        return await stores.plans.change(lease.thread_id, lambda known: mark_step(known, "p", index, "completed", None))

    await asyncio.gather(*(done(index) for index in range(5)))
    (plan,) = await stores.plans.change(lease.thread_id, lambda known: known)
    assert [step.status for step in plan.steps] == ["completed"] * 5


async def test_a_worker_that_lost_its_run_changes_no_plan(stores: Stores) -> None:
    old = await stores.started()
    held = LeaseCheckedPlans(stores.plans, old)
    await held.change(old.thread_id, lambda known: create_plan(known, "p", "Trip", ("Look",)))
    await stores.silence("w1")
    assert await stores.claims.claim(old.run_id, "w2") is not None
    with pytest.raises(LeaseLost):
        await held.change(old.thread_id, lambda known: mark_step(known, "p", 0, "blocked", "the run broke off"))
    (plan,) = await held.read(old.thread_id)
    assert plan.steps[0].status == "not_started"


async def test_a_change_that_raises_changes_nothing(stores: Stores) -> None:
    lease = await stores.started()

    def broken(known: Plans) -> Plans:
        raise ValueError("no")

    assert await stores.plans.change("gone", broken) == ()
    with pytest.raises(ValueError, match="no"):
        await stores.plans.change(lease.thread_id, broken)
    assert await stores.plans.change(lease.thread_id, lambda known: known) == ()


async def test_what_a_plan_is_carried_out_with_is_kept(stores: Stores) -> None:
    lease = await stores.started()
    step = Step(text="Go", status="skipped", key="k", tries=2, result="there", attachments=("a",))
    plan = Plan(plan_id="p", title="Trip", steps=(step,), stage="choice", run_id="r", seen_message_id="m")
    await stores.plans.change(lease.thread_id, lambda known: (*known, plan))
    assert await stores.plans.read(lease.thread_id) == (plan,)
