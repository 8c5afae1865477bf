"""Runs one step of a plan: prepares its agent, cancels it if the plan changes, and stores its result in the plan."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.domain.approval import Approval
from core.domain.errors import ModelError, ModelUnavailable
from core.domain.events import AgentEvent, ChecklistChanged, RunFinished, ToolStarted
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.plans import Plan, Step
from core.domain.threads import Reply, ToolCallRecord
from core.flow.flow_messages import FlowMessageTag, newest_tag, step_text
from core.flow.plan_changes import (
    bracketed_agent_name,
    current_step,
    find_member,
    mark_step_completed,
    mark_step_failed,
    record_members,
    start_next_step,
    text_without_name,
    wait_for_answer,
)
from core.flow.planner import Ended, ends_run
from core.flow.planning_flow import Flow
from core.loop.run_context import RunContext, RunLog, TurnStart
from core.stores import UsageEntry
from core.tools.planning import planning
from core.tools.tool import ToolSet

_BLOCKED = re.compile(r"^[\W_]*BLOCKED[\W_]*[:\-\u2013\u2014]\W*(.*)", re.DOTALL)
BLOCKED_CHARACTERS_MAX = 500


class StepCancelled(Exception):
    """Raised if users remove the step or close the plan while the step is in progress."""


@dataclass(frozen=True, slots=True)
class RunLogWithoutChecklist:
    """Wraps the run log and drops checklist events, so that a step's todo.md does not replace the plan's checklist."""

    run_log: RunLog

    def emit(self, event: AgentEvent) -> None:
        if not isinstance(event, ChecklistChanged):
            self.run_log.emit(event)

    def start_call(self, record: ToolCallRecord, event: ToolStarted) -> None:
        self.run_log.start_call(record, event)

    def finish_call(self, record: ToolCallRecord) -> None:
        self.run_log.finish_call(record)

    def record_usage(self, entry: UsageEntry) -> None:
        self.run_log.record_usage(entry)

    async def commit(self) -> None:
        await self.run_log.commit()


def find_step_agent(flow: Flow, step: Step) -> str:
    """Returns the name of the team member that runs the step, or an empty string for the planner."""
    return find_member(bracketed_agent_name(step.text), flow.team) or ""


async def begin_step(flow: Flow, plan: Plan) -> Plan | None:
    """Returns the plan with its next step in progress, or None if the plan is gone.

    Also stores the agent versions of the team, so that another worker that continues the run uses the same versions."""
    if current_step(plan) and flow.members.items() <= plan.members.items():
        return plan
    return await flow.change_plan(plan, lambda plan: start_next_step(record_members(plan, flow.members), new_id()))


async def run_step(flow: Flow, plan: Plan, step: Step, history: Sequence[Message], left: Ended | None) -> Ended | None:
    """Runs the step with its agent and stores the result in the plan.

    Returns how the run ends, or None if it continues. `left` is the result that an earlier attempt of the run reached
    in this step, or None."""
    name = find_step_agent(flow, step)
    sign = FlowMessageTag(phase="step", key=step.key, agent=name)
    if left is None or newest_tag(history) != sign:
        history = flow.add_message(history, sign, step_text(plan, step))
        context = flow.team[name].context if name else flow.planner
        context = _step_context(flow, step, context)
        if (desk := context.tool_context.knowledge) is not None:
            knowledge = await desk.render_relevant_entries(text_without_name(step.text))
            context = replace(context, prompt=context.prompt.with_knowledge(knowledge))
        try:
            left = await flow.run_turns(context, history, flow.policy.step_turns_max)
        except StepCancelled:
            return None
        except ModelError as error:
            may_pass = isinstance(error, ModelUnavailable)
            await _failed(flow, plan, step, str(error), may_pass=may_pass)
            return None
    if isinstance(left, Approval) or ends_run(left):
        if isinstance(left, RunFinished) and left.reply is not None:
            await flow.change_plan(plan, lambda plan: wait_for_answer(plan, step.key))
        return left
    if left.reply is None:
        if flow.is_used_up(await flow.history()):
            return left
        limit = f"It was not done within {flow.policy.step_turns_max} turns."
        why = limit if left.finish_reason == "max_iterations" else left.message
        await _failed(flow, plan, step, why)
    elif (why := blocked_reason(left.reply)) is not None:
        await _failed(flow, plan, step, why)
    else:
        reply = left.reply
        await flow.change_plan(
            plan, lambda plan: mark_step_completed(plan, step.key, reply.whole_text, reply.attachments)
        )
    return None


async def _failed(flow: Flow, plan: Plan, step: Step, why: str, *, may_pass: bool = True) -> None:
    is_last = not may_pass or step.tries >= flow.policy.tries_max
    await flow.change_plan(plan, lambda plan: mark_step_failed(plan, step.key, why, is_last=is_last))


def blocked_reason(reply: Reply) -> str | None:
    """Returns the reason if the reply says that the step is blocked, else None."""
    found = _BLOCKED.match(reply.text)
    if found is None:
        return None
    return found.group(1).strip()[:BLOCKED_CHARACTERS_MAX] or "The agent did not say what."


def _step_context(flow: Flow, step: Step, context: RunContext) -> RunContext:
    """Returns the agent's context for the step, without the planning tool, because only the flow changes the plan.

    Before each turn, the context checks that the step is still in the plan."""
    tools = {name: tool for name, tool in context.toolbox.tools.items() if name != planning.name}
    log = RunLogWithoutChecklist(context.run_log)

    async def begin_turn() -> TurnStart:
        start = await context.begin_turn()
        now = await flow.find_plan()
        at_hand = current_step(now) if now else None
        if now is None or at_hand is None or at_hand.key != step.key or now.stage == "closed":
            raise StepCancelled
        flow.checklist.show(now)
        return start

    return replace(
        context,
        toolbox=ToolSet(tools),
        run_log=log,
        tool_context=replace(context.tool_context, emit=log.emit),
        begin_turn=begin_turn,
    )
