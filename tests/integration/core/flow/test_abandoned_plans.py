"""However a run with a plan ends, no step of the plan is left as being worked on, in the thread or for the next run."""

import json
from dataclasses import replace

from core.domain.events import RunFailed
from core.run.execute import execute
from core.run.run_end import WORKER_DEATHS_MAX
from tests.fakes.streamed_model import calls
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import Played, plan_of, planned, shown
from tests.integration.core.test_poison_runs import DEADLY

STEPS = ("[research] One", "[research] Two")


def deadly() -> Played:
    return calls(("wait", json.dumps({"text": DEADLY})))


async def died(world: World, times: int) -> str:
    """A run over whose first step so many workers have died."""
    world.model.turns = [planned(*STEPS), *(deadly() for _ in range(times))]
    run_id = await world.say("go")
    for number in range(times):
        world.bench.has_started(DEADLY).clear()
        await world.lose_worker(run_id, lambda: world.bench.until_started(DEADLY), name=f"w{number}")
    assert (await plan_of(world, run_id)).steps[0].status == "in_progress"
    return run_id


async def test_a_run_that_is_given_up_leaves_no_step_under_way(flow_world: World) -> None:
    run_id = await died(flow_world, WORKER_DEATHS_MAX + 1)
    await execute(run_id, flow_world.deps)
    assert isinstance((await flow_world.events(run_id))[-1], RunFailed)
    first, second = (await plan_of(flow_world, run_id)).steps
    assert (first.status, first.notes) == ("blocked", "the run broke off here")
    assert second.status == "not_started"
    assert (await shown(flow_world, run_id))[-1] == ["blocked", "pending"]


async def test_a_stop_while_no_worker_had_the_run_leaves_no_step_under_way(flow_world: World) -> None:
    run_id = await died(flow_world, 1)
    await flow_world.stop(run_id)
    await execute(run_id, flow_world.deps)
    first, _ = (await plan_of(flow_world, run_id)).steps
    assert (first.status, first.notes) == ("blocked", "stopped")
    assert (await shown(flow_world, run_id))[-1] == ["blocked", "pending"]


async def test_the_plan_of_another_run_stays_as_it_is(flow_world: World) -> None:
    run_id = await died(flow_world, WORKER_DEATHS_MAX + 1)
    assert flow_world.deps.stores.plans is not None
    thread_id = (await flow_world.messages(run_id))[0].thread_id
    await flow_world.deps.stores.plans.change(
        thread_id, lambda plans: tuple(replace(plan, run_id="another") for plan in plans)
    )
    await execute(run_id, flow_world.deps)
    assert isinstance((await flow_world.events(run_id))[-1], RunFailed)
    assert (await plan_of(flow_world, run_id)).steps[0].status == "in_progress"
