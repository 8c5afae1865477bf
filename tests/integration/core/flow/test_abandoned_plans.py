"""However a run with a plan ends, no step of the plan is left as being worked on, in the thread or for the next run."""

import json

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
