"""Plans of a thread: steps with their states, the changes that a model makes to them, and how they are shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from core.domain.errors import ToolError
from core.domain.events import ChecklistChanged, ChecklistItem

StepStatus = Literal["not_started", "in_progress", "completed", "blocked", "skipped"]
PlanStage = Literal["own", "going", "choice", "answer", "closed"]
"""What becomes of a plan. "own": the model keeps it itself. The others are of plans that `core.flow` carries out: it is
worked on, people are to choose what becomes of a blocked step, a step waits for their answer, it was given up."""
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
    """`notes` is what people see beside it. The rest is of carried out steps: `key` names the newest try, `tries`
    counts them, `result` and `attachments` are what the step has come to."""

    text: str
    status: StepStatus = "not_started"
    notes: str = ""
    key: str = ""
    tries: int = 0
    result: str = ""
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`run_id`: the run that carries it out now, or did last. `seen_message_id`: the newest message of a person that
    the plan takes into account. `members`: the agent versions of that run's team, by name."""

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
    """The plans of threads."""

    async def change(self, thread_id: str, how: Callable[[Plans], Plans]) -> Plans:
        """Replaces the thread's plans by what `how` makes of them, in one transaction; answers them. It may be called
        more than once, and what it raises passes through with nothing stored."""
        ...

    async def read(self, thread_id: str) -> Plans:
        """The thread's plans as they are stored now."""
        ...


def find_plan(plans: Plans, plan_id: str | None) -> Plan:
    """The plan of that id, or the active one. Raises ToolError."""
    for plan in plans:
        if plan.plan_id == plan_id or (plan_id is None and plan.is_active):
            return plan
    if plan_id is None:
        raise ToolError("No plan is active: give plan_id, or create a plan.")
    known = ", ".join(plan.plan_id for plan in plans) or "none"
    raise ToolError(f"There is no plan {plan_id!r}. The plans are: {known}.")


def create_plan(plans: Plans, plan_id: str, title: str, steps: tuple[str, ...]) -> Plans:
    """With a new plan, which becomes the active one."""
    if any(plan.plan_id == plan_id for plan in plans):
        raise ToolError(f"There is a plan {plan_id!r} already: update it, or take another plan_id.")
    new = Plan(plan_id=plan_id, title=title, steps=tuple(Step(text=text) for text in steps))
    return activate_plan((*plans, new), plan_id)


def update_plan(
    plans: Plans, plan_id: str | None, title: str | None, steps: tuple[str, ...] | None
) -> Plans:
    """With another title or other steps; a step whose words stay keeps its state, wherever it stands now."""
    old = find_plan(plans, plan_id)
    kept = list(old.steps)
    new: list[Step] = []
    for text in [step.text for step in old.steps] if steps is None else steps:
        step = next((one for one in kept if one.text == text), None)
        if step is not None:
            kept.remove(step)
        new.append(step or Step(text=text))
    return _replaced(plans, replace(old, title=title or old.title, steps=tuple(new)))


def mark_step(
    plans: Plans,
    plan_id: str | None,
    step_index: int,
    status: StepStatus | None,
    notes: str | None,
) -> Plans:
    """With the state of one step, counted from 0, changed."""
    plan = find_plan(plans, plan_id)
    if not 0 <= step_index < len(plan.steps):
        raise ToolError(f"There is no step {step_index}: the steps are 0 to {len(plan.steps) - 1}.")
    old = plan.steps[step_index]
    step = replace(
        old, status=status or old.status, notes=old.notes if notes is None else notes.strip()
    )
    steps = (*plan.steps[:step_index], step, *plan.steps[step_index + 1 :])
    return _replaced(plans, replace(plan, steps=steps))


def activate_plan(plans: Plans, plan_id: str) -> Plans:
    """With that plan as the active one."""
    find_plan(plans, plan_id)
    return tuple(replace(plan, is_active=plan.plan_id == plan_id) for plan in plans)


def delete_plan(plans: Plans, plan_id: str) -> Plans:
    find_plan(plans, plan_id)
    return tuple(plan for plan in plans if plan.plan_id != plan_id)


def format_plan(plan: Plan) -> str:
    """The plan as text for the model."""
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
    """All plans, one line each."""
    if not plans:
        return "There are no plans."
    return "\n".join(
        f"{'* ' if plan.is_active else '- '}{plan.plan_id}: {plan.title}, "
        f"{sum(step.status == 'completed' for step in plan.steps)}/{len(plan.steps)} done"
        for plan in plans
    )


def build_checklist(plan: Plan) -> ChecklistChanged:
    """The plan as people see it in the status message."""
    items = tuple(
        ChecklistItem(
            text=f"{step.text} ({step.notes})" if step.notes else step.text,
            state=_SHOWN[step.status],
        )
        for step in plan.steps
    )
    return ChecklistChanged(title=plan.title, items=items)


def _replaced(plans: Plans, new: Plan) -> Plans:
    return tuple(new if plan.plan_id == new.plan_id else plan for plan in plans)
