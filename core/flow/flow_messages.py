"""Builds the messages that the planning flow sends to models, and parses the replies of users about blocked steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.context.background_messages import FLOW_KEY, is_from_person
from core.context.message_text import content_text
from core.context.program_message import read_template
from core.context.tokens import with_token_count
from core.context.untrusted_text import unwrap_message
from core.domain.messages import Message
from core.domain.plans import STATUS_MARKS, Plan, Step
from core.domain.sources import SOURCES_KEY
from core.flow.plan_changes import STEPS_MAX, position_of_step

Phase = Literal["plan", "review", "step", "asked", "report"]
Choice = Literal["again", "skip", "plan", "stop"]
CHOICES: dict[Choice, str] = {
    "again": "Try it again",
    "skip": "Skip this step",
    "plan": "Make a new plan",
    "stop": "Stop here",
}
_SHORT: dict[str, Choice] = {
    "again": "again",
    "continue": "again",
    "go on": "again",
    "retry": "again",
    "try again": "again",
    "skip": "skip",
    "skip it": "skip",
    "replan": "plan",
    "re-plan": "plan",
    "new plan": "plan",
    "stop": "stop",
}
_NOT_A_PERSON = "[From the program that carries out the plan, not from a person]"
SHOWN_RESULT_CHARACTERS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMessageTag:
    """Identifies a flow message: its phase, a key that is unique within the phase, and the agent that it addresses.

    `agent` is empty if the message addresses the planner."""

    phase: Phase
    key: str
    agent: str = ""


def flow_message(sign: FlowMessageTag, text: str, *, thread_id: str, run_id: str) -> Message:
    """Returns the text as a user message, with a note that a program wrote it and not a person."""
    message = Message(
        type="user",
        content={"role": "user", "content": f"{_NOT_A_PERSON}\n{text}"},
        is_llm_message=True,
        thread_id=thread_id,
        run_id=run_id,
        metadata={FLOW_KEY: {"phase": sign.phase, "key": sign.key, "agent": sign.agent}, SOURCES_KEY: {}},
    )
    return with_token_count(message)


def newest_tag(history: Sequence[Message]) -> FlowMessageTag | None:
    """Returns the tag of the newest flow message, or None if there is none."""
    for message in reversed(history):
        match message.metadata.get(FLOW_KEY):
            case {"phase": ("plan" | "review" | "step" | "asked" | "report") as phase, **rest}:
                return FlowMessageTag(phase=phase, key=str(rest.get("key", "")), agent=str(rest.get("agent", "")))
            case _:
                continue
    return None


def unseen_messages(history: Sequence[Message], seen_message_id: str) -> list[Message]:
    """Returns the messages that users wrote after the given message; all of them if it is no longer stored."""
    new: list[Message] = []
    for message in reversed(history):
        if message.message_id == seen_message_id:
            break
        if is_from_person(message):
            new.append(message)
    return new[::-1]


def newest_person_message_id(history: Sequence[Message]) -> str:
    """Returns the id of the newest message that a person wrote, or an empty string."""
    return next((one.message_id for one in reversed(history) if is_from_person(one)), "")


def parse_step_choice(message: Message) -> Choice | None:
    """Returns the choice (such as `skip` or `stop`) that the message names, or None for any other text."""
    said = content_text(message.content.get("content"))
    if message.metadata.get("author"):
        said = unwrap_message(said)
    words = " ".join(said.split()).casefold().rstrip(".!")
    whole: dict[str, Choice] = {text.casefold(): choice for choice, text in CHOICES.items()}
    return whole.get(words) or _SHORT.get(words)


def plan_text(team: Mapping[str, str]) -> str:
    return read_template("flow_plan").format(steps_max=STEPS_MAX, team=_team_text(team))


def review_text(plan: Plan, team: Mapping[str, str]) -> str:
    return read_template("flow_review").format(plan=format_numbered_plan(plan), team=_team_text(team))


def step_text(plan: Plan, step: Step) -> str:
    """Returns the prompt for the step's agent. `step.tries` includes the attempt that starts now."""
    again = f"\nThis is try {step.tries}. The one before it ended so: {step.result}\nTake another way.\n"
    return read_template("flow_step").format(
        plan=format_numbered_plan(plan),
        number=position_of_step(plan, step),
        step=step.text,
        again=again if step.tries > 1 else "",
    )


def final_answer_request_text(plan: Plan) -> str:
    results = [
        f"{index}. {step.text}\n{step.result[:SHOWN_RESULT_CHARACTERS] or step.notes}"
        for index, step in enumerate(plan.steps, start=1)
    ]
    handed = ", ".join(plan_attachments(plan))
    return read_template("flow_report").format(
        plan=format_numbered_plan(plan), results="\n\n".join(results), files=f" They are: {handed}." if handed else ""
    )


def write_blocked_question(plan: Plan, step: Step) -> str:
    """Returns the question that asks users how to continue after a step failed."""
    return (
        f"Step {position_of_step(plan, step)} of the plan did not work out: {step.text}\n\n"
        f"What is in the way: {step.result or step.notes}\n\n"
        "What shall I do? You can also answer in your own words, with a hint or another wish."
    )


def plain_report(plan: Plan) -> str:
    """Returns a report of the completed and open steps, for when no model writes the answer."""
    lines = [f"- {step.text}: {step.result or 'done'}" for step in plan.steps if step.status == "completed"]
    left = [
        f"- {step.text}" + (f" ({step.notes})" if step.notes else "")
        for step in plan.steps
        if step.status != "completed"
    ]
    parts = ["Done:\n" + "\n".join(lines) if lines else "Nothing of the plan was done."]
    parts += ["Not done:\n" + "\n".join(left)] if left else []
    return "\n\n".join(parts)


def plan_attachments(plan: Plan) -> tuple[str, ...]:
    """Returns the paths of the files that the steps attached to their results, without duplicates."""
    return tuple(dict.fromkeys(path for step in plan.steps for path in step.attachments))


def format_numbered_plan(plan: Plan) -> str:
    """Returns the plan as text, with its steps numbered from 1."""
    lines = [f"{index}. {STATUS_MARKS[step.status]} {step.text}" for index, step in enumerate(plan.steps, start=1)]
    return "\n".join([plan.title, *lines])


def _team_text(team: Mapping[str, str]) -> str:
    if not team:
        return ""
    names = "\n".join(f"  - `[{name}]` {' '.join(told.split())}" for name, told in team.items())
    return f"- Begin each step with the name of the agent that is to do it, in brackets, exactly as here:\n{names}\n"
