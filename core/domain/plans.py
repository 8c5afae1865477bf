"""Plans of a thread: steps with their states, functions that change them, and their text for users and the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from core.domain.errors import ToolError
from core.domain.events import ChecklistChanged, ChecklistItem
from core.domain.threads import Lease

StepStatus = Literal["not_started", "in_progress", "completed", "blocked", "skipped"]
PlanStage = Literal["own", "going", "choice", "answer", "closed"]
"""The stage of a plan. "own": the model maintains the plan itself. The other stages belong to plans that `core.flow`
executes. "going": in progress. "choice": users must choose what happens to a blocked step. "answer": a plan that an
older version stored while a step waited for an answer. "closed": given up."""
STATUS_MARKS: dict[StepStatus, str] = {
    "not_started": "[ ]",
    "in_progress": "[→]",
    "completed": "[✓]",
    "blocked": "[!]",
    "skipped": "[-]",
}
_SHOWN: dict[StepStatus, Literal["pending", "active", "done", "blocked"]] = {
    "not_started": "pending",
    "in_progress": "active",
    "completed": "done",
    "blocked": "blocked",
    "skipped": "blocked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a plan. Users see `notes` after the step's text. The other fields are used only if `core.flow` executes
    the step: `key` identifies the latest attempt, `tries` counts the attempts, and `result` and `attachments` are the
    step's outcome."""

    text: str
    status: StepStatus = "not_started"
    notes: str = ""
    key: str = ""
    tries: int = 0
    result: str = ""
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan of a thread.

    `run_id` is the run that executes the plan, or last did. `seen_message_id` is the newest message of a person that
    the plan takes into account. `members` maps names of the run's team to agent version ids.
    """

    plan_id: str
    title: str
    steps: tuple[Step, ...]
    is_active: bool = False
    stage: PlanStage = "own"
    run_id: str = ""
    seen_message_id: str = ""
    members: Mapping[str, str] = field(default_factory=dict[str, str])


Plans = tuple[Plan, ...]
"""All plans of a thread, oldest first; at most one is active."""


class PlanStore(Protocol):
    async def change(
        self, thread_id: str, how: Callable[[Plans], Plans], *, lease: Lease | None = None, key: str = ""
    ) -> Plans:
        """Replaces the thread's plans with the result of `how` in one transaction, and returns them.

        With a key, the change is made only once: if the same command arrives again, the plans are returned as they are.
        `how` may be called more than once. If it raises, nothing is stored and the exception propagates. Raises
        LeaseLost if a lease is given and another worker has taken it over."""
        ...

    async def read(self, thread_id: str) -> Plans: ...


@dataclass(frozen=True, slots=True)
class LeaseCheckedPlans:
    """A plan store through which a run can change plans only while it holds its lease."""

    plans: PlanStore
    held: Lease

    async def change(
        self, thread_id: str, how: Callable[[Plans], Plans], *, lease: Lease | None = None, key: str = ""
    ) -> Plans:
        return await self.plans.change(thread_id, how, lease=lease or self.held, key=key)

    async def read(self, thread_id: str) -> Plans:
        return await self.plans.read(thread_id)


def require_plan(plans: Plans, plan_id: str | None) -> Plan:
    """Returns the plan with that id, or the active plan if the id is None. Raises ToolError if the plan does not
    exist."""
    for plan in plans:
        if plan.plan_id == plan_id or (plan_id is None and plan.is_active):
            return plan
    if plan_id is None:
        raise ToolError("No plan is active: give plan_id, or create a plan.")
    known = ", ".join(plan.plan_id for plan in plans) or "none"
    raise ToolError(f"There is no plan {plan_id!r}. The plans are: {known}.")


def create_plan(plans: Plans, plan_id: str, title: str, steps: tuple[str, ...]) -> Plans:
    """Returns the plans with a new, active plan. Raises ToolError if the id is taken."""
    if any(plan.plan_id == plan_id for plan in plans):
        raise ToolError(f"There is a plan {plan_id!r} already: update it, or take another plan_id.")
    new = Plan(plan_id=plan_id, title=title, steps=tuple(Step(text=text) for text in steps))
    return activate_plan((*plans, new), plan_id)


def update_plan(plans: Plans, plan_id: str | None, title: str | None, steps: tuple[str, ...] | None) -> Plans:
    """Returns the plans with a new title or new steps for one plan. A step with unchanged text keeps its state, even
    if it moves."""
    old = require_plan(plans, plan_id)
    kept = list(old.steps)
    new: list[Step] = []
    for text in [step.text for step in old.steps] if steps is None else steps:
        step = next((one for one in kept if one.text == text), None)
        if step is not None:
            kept.remove(step)
        new.append(step or Step(text=text))
    changed = replace(old, title=title or old.title, steps=tuple(new))
    return tuple(changed if plan.plan_id == changed.plan_id else plan for plan in plans)


def mark_step(
    plans: Plans, plan_id: str | None, step_index: int, status: StepStatus | None, notes: str | None
) -> Plans:
    """Returns the plans with a new status or new notes for one step. `step_index` counts from 0."""
    plan = require_plan(plans, plan_id)
    if not 0 <= step_index < len(plan.steps):
        raise ToolError(f"There is no step {step_index}: the steps are 0 to {len(plan.steps) - 1}.")
    old = plan.steps[step_index]
    step = replace(old, status=status or old.status, notes=old.notes if notes is None else notes.strip())
    steps = (*plan.steps[:step_index], step, *plan.steps[step_index + 1 :])
    return tuple(replace(plan, steps=steps) if one.plan_id == plan.plan_id else one for one in plans)


def activate_plan(plans: Plans, plan_id: str) -> Plans:
    """Returns the plans with that plan as the active one."""
    require_plan(plans, plan_id)
    return tuple(replace(plan, is_active=plan.plan_id == plan_id) for plan in plans)


def delete_plan(plans: Plans, plan_id: str) -> Plans:
    require_plan(plans, plan_id)
    return tuple(plan for plan in plans if plan.plan_id != plan_id)


def format_plan(plan: Plan) -> str:
    """Returns the plan as text for the model."""
    done = sum(step.status == "completed" for step in plan.steps)
    percent = round(100 * done / len(plan.steps)) if plan.steps else 0
    lines = [
        f"Plan: {plan.title} (id {plan.plan_id}{', active' if plan.is_active else ''})",
        f"Progress: {done}/{len(plan.steps)} ({percent}%)",
    ]
    for index, step in enumerate(plan.steps):
        lines.append(f"{index}. {STATUS_MARKS[step.status]} {step.text}")
        if step.notes:
            lines.append(f"   Notes: {step.notes}")
    return "\n".join(lines)


def format_plan_list(plans: Plans) -> str:
    """Returns a summary for the model with one line per plan."""
    if not plans:
        return "There are no plans."
    return "\n".join(
        f"{'* ' if plan.is_active else '- '}{plan.plan_id}: {plan.title}, "
        f"{sum(step.status == 'completed' for step in plan.steps)}/{len(plan.steps)} done"
        for plan in plans
    )


def build_checklist(plan: Plan) -> ChecklistChanged:
    """Returns the plan as the checklist that users see in the status message."""
    items = tuple(
        ChecklistItem(text=f"{step.text} ({step.notes})" if step.notes else step.text, state=_SHOWN[step.status])
        for step in plan.steps
    )
    return ChecklistChanged(title=plan.title, items=items)
