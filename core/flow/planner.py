"""Makes and changes the plan of a flow: runs the planner's turns with a planning tool that edits only this plan."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from core.domain.approval import Approval
from core.domain.errors import ToolError
from core.domain.events import RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.plans import Plan, Plans, Step
from core.flow.flow_messages import (
    FlowMessageTag,
    format_numbered_plan,
    newest_person_message_id,
    newest_tag,
    plan_text,
    review_text,
)
from core.flow.plan_changes import (
    DEFAULT_STEPS,
    DEFAULT_TITLE,
    STEPS_MAX,
    add_plan,
    bracketed_agent_name,
    change_plan,
    find_member,
    flow_plan,
    mark_seen,
    revise_steps,
)
from core.flow.planning_flow import Flow
from core.loop.calls import ENDING_TOOLS
from core.loop.run_context import RunContext
from core.loop.turn import EmptyResponse
from core.tools.planning import PlanningParams, planning
from core.tools.tool import Tool, ToolContext, ToolSet

_PLANS = UUID("5d1c2f0e-6a27-4a6e-9d0c-8f8a4b1f7c35")
OFFERED = ENDING_TOOLS
OFFERED_IN_REVIEW = ENDING_TOOLS - {"complete"}

Ended = RunFinished | Approval
"""How a part of the flow ended: with a finished run, or with an approval that the run waits for."""


@dataclass(slots=True)
class PlanDraft:
    """The planning tool's state while a plan is made or changed. `is_set` is True once the model stored the plan."""

    flow: Flow
    plan_id: str
    seen_message_id: str
    is_set: bool = False

    async def run(self, params: PlanningParams, context: ToolContext) -> str:
        """Runs a planning call on the flow's own plan and returns the new plan. Ignores the plan id from the model.

        Raises ToolError if the command or the steps are not valid."""
        if params.command not in ("create", "update"):
            raise ToolError("Only create and update are for you: the program marks the steps.")
        if not params.steps:
            raise ToolError(f"{params.command} needs steps.")
        steps = validate_steps(params.steps, tuple(self.flow.team))
        seen_id = self.seen_message_id

        def change(known: Plans) -> Plans:
            if any(plan.plan_id == self.plan_id for plan in known):
                return change_plan(
                    known, self.plan_id, lambda plan: mark_seen(revise_steps(plan, params.title, steps), seen_id)
                )
            new = new_plan(self.flow, params.title or DEFAULT_TITLE, steps, seen_id)
            return add_plan(known, replace(new, plan_id=self.plan_id))

        plan = flow_plan(await self.flow.plans.change(context.thread_id, change))
        if plan is None:
            raise ToolError("The conversation is gone, and the plan with it.")
        self.is_set = True
        self.flow.checklist.show(plan)
        return format_numbered_plan(plan)


def validate_steps(steps: Sequence[str], team: Sequence[str]) -> tuple[str, ...]:
    """Returns the steps. Raises ToolError if there are too many, or if a step names an agent outside the team."""
    if len(steps) > STEPS_MAX:
        raise ToolError(f"There are {len(steps)} steps; at most {STEPS_MAX} are taken.")
    if not team:
        return tuple(steps)
    strangers = [
        name for step in steps if (name := bracketed_agent_name(step)) is not None and find_member(name, team) is None
    ]
    if strangers:
        raise ToolError(
            f"Nobody here is named {', '.join(dict.fromkeys(strangers))}. The agents are: {', '.join(team)}. Nothing"
            " was stored; call it again with their names."
        )
    return tuple(steps)


def new_plan(flow: Flow, title: str, steps: Sequence[str], seen_message_id: str) -> Plan:
    return Plan(
        plan_id=new_id(),
        title=title,
        steps=tuple(Step(text=text) for text in steps),
        run_id=flow.run_id,
        seen_message_id=seen_message_id,
    )


def new_draft(flow: Flow, history: Sequence[Message]) -> PlanDraft:
    """Returns the draft of a new plan. The run and the newest request determine the plan id, so that calls can be
    repeated after a crash."""
    said_id = newest_person_message_id(history)
    return PlanDraft(flow, str(uuid5(_PLANS, f"{flow.run_id} {said_id}")), said_id)


def planning_tool(draft: PlanDraft) -> Tool[PlanningParams]:
    """Returns the planning tool for the draft. It is idempotent, so a call that a crash interrupted runs again."""
    return replace(planning, run=draft.run, is_idempotent=True)


async def make_plan(flow: Flow, left: Ended | None) -> Ended | None:
    """Runs the planner to make a plan, and stores the default plan if the planner makes none.

    Returns how the run ends if the planner asked users, answered without a plan, was stopped or reached the budget;
    else None. `left` is the result that an earlier attempt of the run reached in this phase, or None."""
    draft = new_draft(flow, await flow.history())
    sign = FlowMessageTag(phase="plan", key=draft.plan_id)
    text = plan_text(flow.team_descriptions)
    ended = await _drafted(flow, OFFERED, draft, sign, text, left)
    if draft.is_set or ended is not None:
        return ended
    default = new_plan(flow, DEFAULT_TITLE, DEFAULT_STEPS, draft.seen_message_id)
    after = await flow.plans.change(flow.thread_id, lambda known: add_plan(known, default))
    if (plan := flow_plan(after)) is not None:
        flow.checklist.show(plan)
    return None


async def review_plan(flow: Flow, plan: Plan, left: Ended | None) -> Ended | None:
    """Runs the planner on new messages from users, so that it can change the plan.

    Returns how the run ends, or None if the plan continues. `left` is the result of an earlier attempt, or None."""
    history = await flow.history()
    draft = PlanDraft(flow, plan.plan_id, newest_person_message_id(history))
    sign = FlowMessageTag(phase="review", key=draft.seen_message_id)
    text = review_text(plan, flow.team_descriptions)
    ended = await _drafted(flow, OFFERED_IN_REVIEW, draft, sign, text, left)
    if not draft.is_set and ended is None:
        await flow.change_plan(plan, lambda plan: mark_seen(plan, draft.seen_message_id))
    return ended


async def _drafted(
    flow: Flow, offered: Collection[str], draft: PlanDraft, sign: FlowMessageTag, text: str, left: Ended | None
) -> Ended | None:
    """Runs turns with the offered tools until the plan is set, the planner ends without a plan, or a turn limit is
    reached. Returns how the run ends, or None if it continues."""
    context = restrict_tools(flow.planner, offered, planning_tool(draft))
    for _ in range(flow.policy.plan_turns_max):
        history = await flow.history()
        if left is None or newest_tag(history) != sign:
            history = flow.add_message(history, sign, text)
            if flow.is_used_up(history):
                return None
            try:
                left = await flow.run_turns(context, history, 1)
            except EmptyResponse:
                if sign.phase != "review":
                    raise
                return None
        # a plain text does not count as the planner's answer, and silence lets a plan go on
        has_completed = isinstance(left, RunFinished) and left.finish_reason == "agent_terminated"
        if ends_run(left) or (has_completed and not draft.is_set and sign.phase == "plan"):
            return left
        if draft.is_set or (isinstance(left, RunFinished) and left.reply is not None):
            return None
        left = None
    return None


def ends_run(ended: Ended) -> bool:
    """Returns whether the run ends with this result: it waits for users, was stopped or used up the budget."""
    if isinstance(ended, Approval) or ended.finish_reason in ("stopped", "budget"):
        return True
    return ended.reply is not None and ended.reply.kind in ("ask", "takeover")


def restrict_tools(context: RunContext, names: Collection[str], *more: Tool[Any]) -> RunContext:
    """Returns the context with only the named tools and the additional tools in `more`."""
    own = context.toolbox.tools
    tools = {name: tool for name, tool in own.items() if name in names} | {one.name: one for one in more}
    return replace(context, toolbox=ToolSet(tools))
