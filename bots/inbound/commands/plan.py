"""The chat command `plan`, which shows and changes the plan of a thread."""

from functools import partial

from bots.inbound.actions import CommandCalled, Outcome
from core.domain.outside_text import escape_markdown
from core.domain.plans import STATUS_MARKS, Plan, Plans, PlanStore, Step
from core.domain.threads import Run, ThreadSnapshot
from core.flow.plan_changes import (
    NOTE_CHARACTERS_MAX,
    STEPS_MAX,
    append_step,
    change_plan,
    close_plan,
    current_step,
    flow_plan,
    is_over,
    remove_step,
    skip_step,
)

TEXT_CHARACTERS_MAX = 500
NO_PLAN = "There is no plan here."
OVER = "This plan is finished. Write what you need, and I will make a new one."
AGENT_OWNS_LIST = "The agent maintains this list itself: tell it in your own words what to change."


class PlanChangeRefused(Exception):
    """The requested change of a plan is not possible. The message is shown to the user."""


async def answer_plan(called: CommandCalled, snapshot: ThreadSnapshot, plans: PlanStore) -> Outcome:
    """Executes a `plan` command. The answer is private if it only shows the plan, and public if it changes the plan.

    For `plan stop`, the outcome contains the ID of the run to stop, if a run is active."""
    verb, _, rest = called.argument.partition(" ")
    thread_id, run = snapshot.thread.thread_id, snapshot.active_run
    who = called.person.name[:40] or "a user"
    if verb in ("", "show"):
        return Outcome(notice=_shown(await plans.read(thread_id)))
    try:
        after = await plans.change(
            thread_id, lambda known: _edit_plan(known, verb, rest, run, who), key=called.dedupe_key
        )
    except PlanChangeRefused as refusal:
        return Outcome(notice=str(refusal))
    stopped = run.run_id if run is not None and verb == "stop" else None
    return Outcome(notice=_shown(after), is_private=False, run_id=stopped)


def _edit_plan(known: Plans, verb: str, rest: str, run: Run | None, who: str) -> Plans:
    """Returns the plans after an edit. Raises PlanChangeRefused if the edit is not possible.

    May be called again with newer plans after a concurrent change. A closed plan can be stopped again while its run is
    active, because a crash may have closed the plan without stopping the run."""
    plan = flow_plan(known)
    if plan is None:
        raise PlanChangeRefused(AGENT_OWNS_LIST if known else NO_PLAN)
    is_running = run is not None and run.run_id == plan.run_id
    is_stoppable = is_running and (verb == "stop" or plan.stage != "closed")
    if is_over(plan) and not is_stoppable:
        raise PlanChangeRefused(OVER)
    match verb:
        case "add":
            text = " ".join(rest.split())
            if len(text) > TEXT_CHARACTERS_MAX:
                raise PlanChangeRefused(f"A step has at most {TEXT_CHARACTERS_MAX} characters.")
            if len(plan.steps) >= STEPS_MAX:
                raise PlanChangeRefused(f"A plan has at most {STEPS_MAX} steps.")
            change = partial(append_step, text=text)
        case "remove":
            step = _numbered(plan, rest)
            if step is current_step(plan):
                raise PlanChangeRefused(f"It is being worked on just now; `plan skip {rest}` leaves it.")
            change = partial(remove_step, step=step)
        case "skip":
            note = f"skipped by {who}"[:NOTE_CHARACTERS_MAX]
            change = partial(skip_step, step=_numbered(plan, rest), note=note)
        case "stop":
            change = partial(close_plan, why=f"stopped by {who}")
        case _:
            raise ValueError(f"unknown change of a plan: {verb}")
    return change_plan(known, plan.plan_id, change)


def _numbered(plan: Plan, rest: str) -> Step:
    """Returns the step with the number in `rest`. Raises PlanChangeRefused if it does not exist or is finished."""
    if not 1 <= int(rest) <= len(plan.steps):
        raise PlanChangeRefused(f"Name a step by its number, 1 to {len(plan.steps)}.")
    step = plan.steps[int(rest) - 1]
    if step.status in ("completed", "skipped"):
        raise PlanChangeRefused("That step is over already.")
    return step


def _shown(known: Plans) -> str:
    plan = flow_plan(known) or next((one for one in known if one.is_active), None)
    if plan is None:
        return NO_PLAN
    done = sum(step.status == "completed" for step in plan.steps)
    is_given_up = " It was given up." if plan.stage == "closed" else ""
    lines = [f"**{plan.title}**: {done} of {len(plan.steps)} steps are done.{is_given_up}"]
    for number, step in enumerate(plan.steps, start=1):
        note = f" ({escape_markdown(step.notes)})" if step.notes else ""
        lines.append(f"{number}. {STATUS_MARKS[step.status]} {step.text}{note}")
    return "\n".join(lines)
