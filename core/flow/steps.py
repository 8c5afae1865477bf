"""The states of a plan that is carried out, and every change from one to the next. Pure."""

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
    """The newest plan that is, or was, carried out."""
    return next((plan for plan in reversed(plans) if plan.stage != "own"), None)


def is_over(plan: Plan) -> bool:
    """Whether there is nothing left to do."""
    return plan.stage == "closed" or all(step.status in _OVER for step in plan.steps)


def current_step(plan: Plan) -> Step | None:
    """The step that is worked on."""
    return next((step for step in plan.steps if step.status == "in_progress"), None)


def blocked_step(plan: Plan) -> Step | None:
    return next((step for step in plan.steps if step.status == "blocked"), None)


def next_step(plan: Plan) -> Step | None:
    """What is to be done now: the step under way, or the first that nobody has begun."""
    wait_for_answer = (step for step in plan.steps if step.status == "not_started")
    return current_step(plan) or next(wait_for_answer, None)


def step_number(plan: Plan, step: Step) -> int:
    """Its place, counted from 1; identity counts, since two steps may have the same words."""
    return next(index for index, one in enumerate(plan.steps, start=1) if one is step)


def add_plan(plans: Plans, new: Plan) -> Plans:
    """With the plan to carry out; whatever was carried out before is over."""
    older = (_put_away(plan) for plan in plans if plan.plan_id != new.plan_id)
    return (*older, replace(new, is_active=True, stage="going"))


def change_plan(plans: Plans, plan_id: str, how: Change) -> Plans:
    return tuple(how(plan) if plan.plan_id == plan_id else plan for plan in plans)


def revise_steps(plan: Plan, title: str | None, texts: Sequence[str]) -> Plan:
    """With other steps from here on. What is done stays done and stands first, whatever the new list says."""
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
    """With the versions of the team written down."""
    return replace(plan, members={**plan.members, **members})


def recorded_members(plans: Plans, run_id: str) -> Mapping[str, str]:
    """The versions that the run's team has worked as, whatever plan it was for."""
    mine = [plan.members for plan in plans if plan.run_id == run_id]
    return {name: version for members in mine for name, version in members.items()}


def start_next_step(plan: Plan, key: str) -> Plan:
    """With one more try of the next step under way."""
    step = next_step(plan)
    if step is None or step.status == "in_progress" or plan.stage == "closed":
        return plan
    return _with(plan, step, replace(step, status="in_progress", key=key, tries=step.tries + 1))


def complete_step(plan: Plan, key: str, result: str, attachments: tuple[str, ...] = ()) -> Plan:
    """With the try come to its end; nothing where people have taken the step out of it meanwhile."""
    done = replace(
        _NO_STEP,
        status="completed",
        notes=short_note(result),
        result=result[:RESULT_CHARACTERS_MAX],
        attachments=attachments,
    )
    return _ended(plan, key, done)


def fail_step(plan: Plan, key: str, why: str, *, is_last: bool) -> Plan:
    """With the try failed: to be tried again, or blocked until people have chosen."""
    step = _ended(
        plan, key, replace(_NO_STEP, status="not_started", notes=short_note(why), result=why)
    )
    if not is_last:
        return step
    gone = replace(_NO_STEP, status="blocked", notes=short_note(why), result=why)
    return replace(_ended(plan, key, gone), stage="choice")


def wait_for_answer(plan: Plan, key: str) -> Plan:
    """With the step waiting for what people answer to its agent."""
    return replace(
        _ended(plan, key, replace(_NO_STEP, status="blocked", notes=WAITS)), stage="answer"
    )


def block_open_step(plan: Plan, why: str) -> Plan:
    """With nothing under way: what the end of a run leaves, and people see."""
    step = current_step(plan)
    return _with(plan, step, replace(step, status="blocked", notes=why)) if step else plan


def resume_plan(plan: Plan, run_id: str) -> Plan:
    """With a run that goes on with it: what was blocked is tried again from the start of its count."""
    steps = tuple(_afresh(step, plan.stage) for step in plan.steps)
    return replace(_handed_to(plan, run_id), stage="going", is_active=True, steps=steps)


def skip_step(plan: Plan, step: Step | None, note: str) -> Plan:
    """Without that step of the plan, which stays in sight."""
    return _with(plan, step, replace(step, status="skipped", notes=note)) if step else plan


def apply_answer(plan: Plan, choice: str | None, run_id: str, message_id: str) -> Plan:
    """With what people have chosen, or said, where it had stopped. Their own words are for the planner to look at, but
    for those that a step waits for."""
    if choice == "stop":
        return _handed_to(close_plan(mark_seen(plan, message_id), "stopped here"), run_id)
    if choice == "skip":
        plan = skip_step(plan, blocked_step(plan), "skipped")
    if choice in ("again", "skip") or (plan.stage == "answer" and message_id):
        plan = mark_seen(plan, message_id)
    return resume_plan(plan, run_id)


def append_step(plan: Plan, text: str) -> Plan:
    """With one more step at the end."""
    return replace(plan, steps=(*plan.steps, Step(text=text)))


def remove_step(plan: Plan, step: Step) -> Plan:
    """Without the step, as if it had never been there."""
    return replace(plan, steps=tuple(one for one in plan.steps if one is not step))


def close_plan(plan: Plan, why: str) -> Plan:
    """With nothing of it to be done any more."""
    return replace(block_open_step(plan, why), stage="closed")


def short_note(text: str) -> str:
    """The first line of a result, short, as a note beside the step."""
    lines = [" ".join(line.strip("#*_` ").split()) for line in text.splitlines()]
    line = next((one for one in lines if one), "")
    short = line[: NOTE_CHARACTERS_MAX - 1].rstrip()
    return line if len(line) <= NOTE_CHARACTERS_MAX else f"{short}…"


_NO_STEP = Step(text="")


def _handed_to(plan: Plan, run_id: str) -> Plan:
    """Another run works with today's versions of its team."""
    members: Mapping[str, str] = plan.members if plan.run_id == run_id else {}
    return replace(plan, run_id=run_id, members=members)


def _afresh(step: Step, stage: str) -> Step:
    if step.status not in ("blocked", "in_progress"):
        return step
    if stage == "answer" and step.notes == WAITS:
        return replace(step, status="in_progress", notes="")
    return replace(step, status="not_started", tries=0)


def _ended(plan: Plan, key: str, end: Step) -> Plan:
    step = current_step(plan)
    if step is None or step.key != key:
        return plan
    return _with(plan, step, replace(end, text=step.text, key=key, tries=step.tries))


def _with(plan: Plan, old: Step, new: Step) -> Plan:
    return replace(plan, steps=tuple(new if one is old else one for one in plan.steps))


def _put_away(plan: Plan) -> Plan:
    is_ours = plan.stage != "own"
    return replace(close_plan(plan, "given up") if is_ours else plan, is_active=False)


_NAMED = re.compile(r"^\s*\[([^\[\]\n]{1,80})\]\s*")


def agent_name_in(text: str) -> str | None:
    """The name in front of a step, as it was written; None where there is none."""
    found = _NAMED.match(text)
    return found.group(1).strip() if found else None


def text_without_name(text: str) -> str:
    """The step without the name."""
    return text[found.end() :] if (found := _NAMED.match(text)) else text


def find_member(name: str | None, team: Iterable[str]) -> str | None:
    """The one of the team that is meant, whatever the case and the signs between the words; None: nobody."""
    if name is None:
        return None
    return next((one for one in team if _plain(one) == _plain(name)), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name.casefold()).strip("-")
