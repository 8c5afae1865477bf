"""What holds for any run holds for a flow: approvals, budgets, and what people see of a step's own list."""

from dataclasses import dataclass

from core.domain.budget import Budget, Limit
from core.domain.events import AgentEvent, ChecklistChanged, ErrorRaised
from core.flow.step_runner import RunLogWithoutChecklist
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


def test_a_list_of_a_step_does_not_take_the_place_of_the_plan() -> None:
    told: list[AgentEvent] = []
    log = RunLogWithoutChecklist(Told(told))
    log.emit(ChecklistChanged(title="todo.md", items=()))
    log.emit(ErrorRaised(message="x"))
    assert told == [ErrorRaised(message="x")]


@dataclass
class Told:
    """As much of a run's log as takes events."""

    told: list[AgentEvent]

    def emit(self, event: AgentEvent) -> None:
        self.told.append(event)
