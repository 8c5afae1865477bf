"""The tool that manages plans: the thread's list of steps, which users see as a live checklist."""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints

from core.domain import plans
from core.domain.call_consent import STAYS
from core.domain.errors import ToolError
from core.domain.plans import Plans
from core.tools.tool import Tool, ToolContext

Command = Literal["create", "update", "list", "get", "set_active", "mark_step", "delete"]
Status = Literal["not_started", "in_progress", "completed", "blocked"]
ValueT = TypeVar("ValueT")
ShortText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class PlanningParams(BaseModel):
    """Make and follow a plan for work of several steps. People see the active plan as a live checklist. Create it
    before you begin, mark each step as in_progress when you start it and as completed when it is done."""

    command: Command = Field(
        description="create (title, steps), update (title, steps), list, get, set_active, "
        "mark_step (step_index, step_status, step_notes) or delete."
    )
    plan_id: ShortText | None = Field(
        default=None, description="Which plan. Needed for create, set_active and delete; else the active plan."
    )
    title: ShortText | None = Field(default=None, description="What the plan is for.")
    steps: list[ShortText] | None = Field(
        default=None, min_length=1, max_length=100, description="The steps, in order."
    )
    step_index: int | None = Field(default=None, ge=0, description="Which step, counted from 0.")
    step_status: Status | None = Field(default=None, description="Its new state.")
    step_notes: Annotated[str, StringConstraints(max_length=2000)] | None = Field(
        default=None, description="What is worth knowing about the step."
    )


async def run_planning(params: PlanningParams, context: ToolContext) -> str:
    if context.plans is None:
        raise ToolError("There is no place to keep plans here.")
    after = await context.plans.change(context.thread_id, lambda known: apply_command(known, params))
    if params.command == "list":
        return plans.format_plan_list(after)
    if params.command == "delete":
        return f"The plan {params.plan_id} is deleted."
    plan = plans.require_plan(after, params.plan_id)
    if plan.is_active and params.command != "get":
        context.emit(plans.build_checklist(plan))
    return plans.format_plan(plan)


def apply_command(known: Plans, params: PlanningParams) -> Plans:
    """Returns the plans after the command. Raises ToolError if the command lacks a parameter."""
    steps = tuple(params.steps) if params.steps is not None else None
    match params.command:
        case "create":
            title = _needed(params.title, "title", params)
            wanted = _needed(steps, "steps", params)
            return plans.create_plan(known, _needed(params.plan_id, "plan_id", params), title, wanted)
        case "update":
            return plans.update_plan(known, params.plan_id, params.title, steps)
        case "mark_step":
            index = _needed(params.step_index, "step_index", params)
            return plans.mark_step(known, params.plan_id, index, params.step_status, params.step_notes)
        case "set_active":
            return plans.activate_plan(known, _needed(params.plan_id, "plan_id", params))
        case "delete":
            return plans.delete_plan(known, _needed(params.plan_id, "plan_id", params))
        case "list" | "get":
            return known


def _needed(value: ValueT | None, name: str, params: PlanningParams) -> ValueT:
    if value is None:
        raise ToolError(f"{params.command} needs {name}.")
    return value


planning = Tool(
    name="planning",
    effect="writes",
    reach=STAYS,
    params=PlanningParams,
    run=run_planning,
    subject="plans",
    requires=("thread",),
    title=lambda params: f"Planning: {params.command.replace('_', ' ')}",
    example={
        "command": "create",
        "plan_id": "report",
        "title": "Write the report",
        "steps": ["Read the sources", "Draw the charts", "Write it"],
    },
)
