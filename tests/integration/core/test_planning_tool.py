"""The planning tool: its commands, its marks, and the checklist that people see."""

import json
from pathlib import Path

import pytest

from core.domain import plans
from core.domain.errors import ToolError
from core.domain.events import ChecklistChanged
from core.tools.catalogue import all_tools
from core.tools.planning import PlanningParams, apply_command
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World, load_roster


def after(*commands: dict[str, object]) -> plans.Plans:
    known: plans.Plans = ()
    for command in commands:
        known = apply_command(known, PlanningParams.model_validate(command))
    return known


CREATE = {"command": "create", "plan_id": "p", "title": "Trip", "steps": ["Look", "Book", "Go"]}


def test_a_plan_is_drawn_with_its_marks_and_progress() -> None:
    known = after(
        CREATE,
        {"command": "mark_step", "step_index": 0, "step_status": "completed"},
        {"command": "mark_step", "step_index": 1, "step_status": "blocked", "step_notes": "No card"},
        {"command": "mark_step", "plan_id": "p", "step_index": 2, "step_status": "in_progress"},
    )
    assert plans.format_plan(known[0]) == (
        "Plan: Trip (id p, active)\nProgress: 1/3 (33%)\n0. [✓] Look\n1. [!] Book\n   Notes: No card\n2. [→] Go"
    )


def test_steps_that_stay_keep_their_states_wherever_they_stand() -> None:
    known = after(
        CREATE,
        {"command": "mark_step", "step_index": 1, "step_status": "completed"},
        {"command": "update", "steps": ["First", "Look", "Book"]},
    )
    states = [(step.text, step.status) for step in known[0].steps]
    assert states == [("First", "not_started"), ("Look", "not_started"), ("Book", "completed")]


def test_a_new_plan_becomes_active_and_another_can_be_made_so() -> None:
    known = after(CREATE, {**CREATE, "plan_id": "q"})
    assert [plan.is_active for plan in known] == [False, True]
    known = apply_command(known, PlanningParams(command="set_active", plan_id="p"))
    assert [plan.is_active for plan in known] == [True, False]
    assert plans.format_plan_list(known) == "* p: Trip, 0/3 done\n- q: Trip, 0/3 done"
    assert [plan.plan_id for plan in apply_command(known, PlanningParams(command="delete", plan_id="p"))] == ["q"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (CREATE, "There is a plan 'p' already"),
        ({"command": "create", "plan_id": "q", "title": "x"}, "create needs steps"),
        ({"command": "mark_step", "step_index": 3}, "the steps are 0 to 2"),
        ({"command": "mark_step"}, "mark_step needs step_index"),
        ({"command": "delete", "plan_id": "no"}, "The plans are: p"),
    ],
)
def test_what_is_wrong_is_told(command: dict[str, object], sentence: str) -> None:
    with pytest.raises(ToolError, match=sentence):
        after(CREATE, command)


async def test_a_plan_is_kept_with_the_thread_and_shown_as_a_checklist(world: World, tmp_path: Path) -> None:
    (tmp_path / "threadhand.yaml").write_text("name: Threadhand\ndescription: Plans.\n")
    world.with_deps(
        roster=load_roster(world.database, tmp_path), toolbox=ToolSet({"planning": all_tools()["planning"]})
    )
    mark = {"command": "mark_step", "step_index": 0, "step_status": "in_progress"}
    world.model.turns = [calls(("planning", json.dumps(CREATE))), text("made")]
    first = await world.run("plan it")
    world.model.turns = [calls(("planning", json.dumps(mark))), text("begun")]
    second = await world.run("begin")
    shown = [one for one in await world.events(first) if isinstance(one, ChecklistChanged)]
    assert [item.state for item in shown[0].items] == ["pending"] * 3
    shown = [one for one in await world.events(second) if isinstance(one, ChecklistChanged)]
    assert shown[0].title == "Trip"
    assert [item.state for item in shown[0].items] == ["active", "pending", "pending"]
