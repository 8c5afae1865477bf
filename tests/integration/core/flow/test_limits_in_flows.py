"""What holds for any run holds for a flow: approvals, budgets, and what people see of a step's own list."""

from core.domain.budget import Budget, Limit
from tests.fakes.streamed_model import text
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import plan_of, planned, shown


async def test_a_budget_that_is_used_up_ends_the_flow_with_its_sentence(flow_world: World) -> None:
    world = flow_world.with_deps(budget=Budget(run=Limit(tokens=20)))
    world.model.turns = [planned("A", "B"), text("a")]
    run_id = await world.run("go")
    ended = await world.read_end(run_id)
    assert (ended.finish_reason, ended.can_continue) == ("budget", True)
    assert "30 of 20 tokens" in ended.message
    plan = await plan_of(world, run_id)
    assert [step.status for step in plan.steps] == ["completed", "blocked"]
    assert (await shown(world, run_id))[-1] == ["done", "blocked"]
