"""Pure functions that read and change the state of plans and their steps. Each change returns a new plan."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from core.domain.plans import Plan, Plans, Step

STEPS_MAX = 50
NOTE_CHARACTERS_MAX = 100
RESULT_CHARACTERS_MAX = 4_000
DEFAULT_TITLE = "Plan"
DEFAULT_STEPS = ("Do what was asked for", "Check the result against what was asked for")
WAITS = "waits for an answer"
_OVER = ("completed", "skipped")

Change = Callable[[Plan], Plan]


def flow_plan(plans: Plans) -> Plan | None:
    """Returns the newest plan that a flow runs or has run, or None. An agent's own plans do not count."""
    return next((plan for plan in reversed(plans) if plan.stage != "own"), None)


def is_over(plan: Plan) -> bool:
    """Returns whether the plan is closed, or all its steps are completed or skipped."""
    return plan.stage == "closed" or all(step.status in _OVER for step in plan.steps)


def current_step(plan: Plan) -> Step | None:
    """Returns the step in progress, or None."""
    return next((step for step in plan.steps if step.status == "in_progress"), None)


def blocked_step(plan: Plan) -> Step | None:
    return next((step for step in plan.steps if step.status == "blocked"), None)


def waiting_step(plan: Plan) -> Step | None:
    """Returns the step whose agent has asked users a question, or None. A plan that was given up waits for nothing."""
    steps = () if plan.stage == "closed" else plan.steps
    return next((step for step in steps if step.status == "blocked" and step.notes == WAITS), None)


def next_step(plan: Plan) -> Step | None:
    """Returns the step in progress, else the first step that has not started, else None."""
    wait_for_answer = (step for step in plan.steps if step.status == "not_started")
    return current_step(plan) or next(wait_for_answer, None)


def position_of_step(plan: Plan, step: Step) -> int:
    """Returns the step's position in the plan, from 1. Compares by identity, because steps may have equal texts."""
    return next(index for index, one in enumerate(plan.steps, start=1) if one is step)


def add_plan(plans: Plans, new: Plan) -> Plans:
    """Returns the plans with the new plan as the active one. Closes the plan that a flow ran before."""
    older = (plan if plan.stage == "own" else close_plan(plan, "given up") for plan in plans)
    put_away = (replace(plan, is_active=False) for plan in older if plan.plan_id != new.plan_id)
    return (*put_away, replace(new, is_active=True, stage="going"))


def change_plan(plans: Plans, plan_id: str, how: Change) -> Plans:
    return tuple(how(plan) if plan.plan_id == plan_id else plan for plan in plans)


def revise_steps(plan: Plan, title: str | None, texts: Sequence[str]) -> Plan:
    """Returns the plan with the given steps.

    Completed and skipped steps are kept, and come first, even if missing from `texts`. An open step with the same text
    keeps its state."""
    done = [step for step in plan.steps if step.status in _OVER]
    texts_done = [step.text for step in done]
    kept = [step for step in plan.steps if step.status not in _OVER]
    new: list[Step] = []
    for text in texts:
        if text in texts_done:
            texts_done.remove(text)
            continue
        step = next((one for one in kept if one.text == text), None)
        if step is not None:
            kept.remove(step)
        new.append(step or Step(text=text))
    return replace(plan, title=title or plan.title, steps=(*done, *new))


def mark_seen(plan: Plan, message_id: str) -> Plan:
    return replace(plan, seen_message_id=message_id)


def record_members(plan: Plan, members: Mapping[str, str]) -> Plan:
    """Returns the plan with agent version ids, by agent name, added to its members."""
    return replace(plan, members={**plan.members, **members})


def recorded_members(plans: Plans, run_id: str) -> Mapping[str, str]:
    """Returns the agent version ids, by agent name, that the run's plans have recorded."""
    mine = [plan.members for plan in plans if plan.run_id == run_id]
    return {name: version for members in mine for name, version in members.items()}


def start_next_step(plan: Plan, key: str) -> Plan:
    """Returns the plan with its next step in progress and one more attempt counted. `key` identifies the attempt."""
    step = next_step(plan)
    if step is None or step.status == "in_progress" or plan.stage == "closed":
        return plan
    return _with(plan, step, replace(step, status="in_progress", key=key, tries=step.tries + 1))


def mark_step_completed(plan: Plan, key: str, result: str, attachments: tuple[str, ...] = ()) -> Plan:
    """Returns the plan with the step in progress marked as completed; unchanged if `key` is not that step's key."""
    done = replace(
        _NO_STEP,
        status="completed",
        notes=short_note(result),
        result=result[:RESULT_CHARACTERS_MAX],
        attachments=attachments,
    )
    return _ended(plan, key, done)


def mark_step_failed(plan: Plan, key: str, why: str, *, is_last: bool) -> Plan:
    """Returns the plan after a failed attempt at the step in progress; unchanged if `key` is not that step's key.

    The step can be attempted again, unless `is_last` is True: then it is blocked until users choose how to continue."""
    step = _ended(plan, key, replace(_NO_STEP, status="not_started", notes=short_note(why), result=why))
    if not is_last:
        return step
    gone = replace(_NO_STEP, status="blocked", notes=short_note(why), result=why)
    return replace(_ended(plan, key, gone), stage="choice")


def wait_for_answer(plan: Plan, key: str) -> Plan:
    """Returns the plan with the step blocked until users answer the question of its agent."""
    return _ended(plan, key, replace(_NO_STEP, status="blocked", notes=WAITS))


def block_open_step(plan: Plan, why: str) -> Plan:
    """Returns the plan with the step in progress marked as blocked, for use when a run ends. `why` is shown to
    users."""
    step = current_step(plan)
    return _with(plan, step, replace(step, status="blocked", notes=why)) if step else plan


def resume_plan(plan: Plan, run_id: str) -> Plan:
    """Returns the plan, continued by the given run. Blocked steps are attempted again.

    Their number of attempts restarts at 0, except for a step that waited for an answer."""
    steps = list[Step]()
    for step in plan.steps:
        if step.status in ("blocked", "in_progress"):
            if step.notes == WAITS:
                step = replace(step, status="in_progress", notes="")
            else:
                step = replace(step, status="not_started", tries=0)
        steps.append(step)
    return replace(_handed_to(plan, run_id), stage="going", is_active=True, steps=tuple(steps))


def skip_step(plan: Plan, step: Step | None, note: str) -> Plan:
    """Returns the plan with the step marked as skipped; the step stays visible. Does nothing if the step is None."""
    return _with(plan, step, replace(step, status="skipped", notes=note)) if step else plan


def apply_answer(plan: Plan, choice: str | None, run_id: str, message_id: str) -> Plan:
    """Returns the paused plan after users chose how to continue, or answered a step's question.

    If `choice` is None and no step waits for an answer, the message stays unseen, so that the planner reviews it."""
    if choice == "stop":
        return _handed_to(close_plan(mark_seen(plan, message_id), "stopped here"), run_id)
    if choice == "skip":
        plan = skip_step(plan, blocked_step(plan), "skipped")
    if choice in ("again", "skip") or (waiting_step(plan) and message_id):
        plan = mark_seen(plan, message_id)
    return resume_plan(plan, run_id)


def append_step(plan: Plan, text: str) -> Plan:
    """Returns the plan with a new step added at the end."""
    return replace(plan, steps=(*plan.steps, Step(text=text)))


def remove_step(plan: Plan, step: Step) -> Plan:
    """Returns the plan without the step."""
    return replace(plan, steps=tuple(one for one in plan.steps if one is not step))


def close_plan(plan: Plan, why: str) -> Plan:
    """Returns the plan as closed, so that no more of its steps run. `why` is noted on a step in progress."""
    return replace(block_open_step(plan, why), stage="closed")


def short_note(text: str) -> str:
    """Returns the first non-empty line of a result, without Markdown marks, truncated to NOTE_CHARACTERS_MAX."""
    lines = [" ".join(line.strip("#*_` ").split()) for line in text.splitlines()]
    line = next((one for one in lines if one), "")
    short = line[: NOTE_CHARACTERS_MAX - 1].rstrip()
    return line if len(line) <= NOTE_CHARACTERS_MAX else f"{short}…"


_NO_STEP = Step(text="")


def _handed_to(plan: Plan, run_id: str) -> Plan:
    """Returns the plan assigned to the run. A different run starts with the current agent versions of its team."""
    members: Mapping[str, str] = plan.members if plan.run_id == run_id else {}
    return replace(plan, run_id=run_id, members=members)


def _ended(plan: Plan, key: str, end: Step) -> Plan:
    step = current_step(plan)
    if step is None or step.key != key:
        return plan
    return _with(plan, step, replace(end, text=step.text, key=key, tries=step.tries))


def _with(plan: Plan, old: Step, new: Step) -> Plan:
    return replace(plan, steps=tuple(new if one is old else one for one in plan.steps))


_NAMED = re.compile(r"^\s*\[([^\[\]\n]{1,80})\]\s*")


def bracketed_agent_name(text: str) -> str | None:
    """Returns the agent name in brackets at the start of a step's text, or None."""
    found = _NAMED.match(text)
    return found.group(1).strip() if found else None


def text_without_name(text: str) -> str:
    """Returns a step's text without the agent name at its start."""
    return text[found.end() :] if (found := _NAMED.match(text)) else text


def find_member(name: str | None, team: Iterable[str]) -> str | None:
    """Returns the team member with the name, or None. Ignores case and the characters between words."""
    if name is None:
        return None
    return next((one for one in team if _plain(one) == _plain(name)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.casefold()).strip("-")
