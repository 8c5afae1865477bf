"""Runs a planning flow: makes the plan, runs its steps, handles new messages from users and writes the answer."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from core.domain.approval import Approval
from core.domain.errors import LeaseLost, StorageUnavailable
from core.domain.events import RunFinished
from core.domain.messages import Message
from core.domain.plans import Plan, build_checklist
from core.domain.threads import Lease, Reply
from core.flow.flow_messages import (
    CHOICES,
    FlowMessageTag,
    final_answer_request_text,
    newest_tag,
    parse_step_choice,
    plain_report,
    plan_attachments,
    unseen_messages,
    write_blocked_question,
)
from core.flow.plan_changes import (
    apply_answer,
    block_open_step,
    blocked_step,
    change_plan,
    current_step,
    flow_plan,
    is_over,
    next_step,
    waiting_step,
)
from core.flow.planner import Ended, ends_run, make_plan, new_draft, planning_tool, restrict_tools, review_plan
from core.flow.planning_flow import Flow
from core.flow.step_runner import begin_step, run_step
from core.loop.loop import STOPPED
from core.loop.run_answer import recover_answer
from core.loop.run_context import RunContext
from core.loop.turn import EmptyResponse
from core.run.deps import RunDeps
from core.run.recorder import RunRecorder
from core.tasks import Stopped


async def context_of_newest_message(flow: Flow, history: Sequence[Message]) -> RunContext:
    """Returns the run context of the agent that the newest flow message addresses, for repairing that agent's calls."""
    sign = newest_tag(history)
    if sign is not None and sign.phase == "step" and sign.agent in flow.team:
        return flow.team[sign.agent].context
    draft = new_draft(flow, history)
    plan = await flow.find_plan()
    if sign is not None and sign.phase == "review" and plan is not None:
        draft = replace(draft, plan_id=plan.plan_id)
    return restrict_tools(flow.planner, tuple(flow.planner.toolbox.tools), planning_tool(draft))


log = logging.getLogger(__name__)
EMPTY = "The plan is empty now, so there is nothing left to do. Tell me what you need."
GIVEN_UP = "The plan was given up."
BROKE_OFF = "the run broke off here"
REPORT_TOOLS = ("complete",)


RepairHistory = Callable[[RunContext], Awaitable[Approval | None]]


async def run_flow(flow: Flow, *, repair_history: RepairHistory | None = None) -> Ended:
    """Runs the flow and returns how the run ended, or the approval it waits for, like `core.loop.loop.run_agent`.

    For a run that an earlier attempt started, pass `repair_history`: it repairs the history with the given run context
    and returns the approval that the run now waits for, or None. If the flow ends or fails, a step in progress is
    marked as blocked."""
    try:
        return await _Play(flow, repair_history).to_the_end()
    except (LeaseLost, StorageUnavailable):
        raise
    except Exception:  # the caller reports the error; the checklist must not show a step in progress forever
        await block_open_steps(flow, BROKE_OFF)
        raise


async def block_open_steps(flow: Flow, why: str) -> None:
    """Marks the run's step in progress as blocked, so that the last checklist shows the state at the end of the run."""
    plan = await flow.find_plan()
    if plan is None or plan.run_id != flow.run_id:
        return
    if current_step(plan) is not None:
        await flow.change_plan(plan, lambda plan: block_open_step(plan, why))
    else:
        flow.checklist.show(plan)


async def block_steps_of_ended_run(lease: Lease, deps: RunDeps, recorder: RunRecorder, why: str = BROKE_OFF) -> None:
    """Marks the step in progress as blocked if the run ends outside its flow.

    Raises LeaseLost if another worker holds the run's lease."""
    plans = deps.stores.plans
    plan = flow_plan(await plans.read(lease.thread_id))
    if plan is None or plan.run_id != lease.run_id or not current_step(plan):
        return
    await recorder.read_inputs()
    after = await plans.change(
        lease.thread_id, lambda known: change_plan(known, plan.plan_id, lambda plan: block_open_step(plan, why))
    )
    if (new := flow_plan(after)) is not None:
        recorder.emit(build_checklist(new))


class _Play:
    """One attempt to run a flow. Keeps the result of the previous attempt until a phase uses it."""

    def __init__(self, flow: Flow, mend: RepairHistory | None) -> None:
        self._flow = flow
        self._mend = mend
        self._before: Ended | None = None

    async def to_the_end(self) -> Ended:
        flow = self._flow
        if self._mend is not None:
            context = await context_of_newest_message(flow, await flow.history())
            self._before = await self._mend(context)
            if self._before is None:
                _, self._before = await recover_answer(await flow.history(), flow.calls, context)
            plan = await flow.find_plan()
            if plan is not None and plan.run_id == flow.run_id:
                flow.checklist.show(plan)  # a crash may have lost the event of the last change
            if isinstance(self._before, Approval):
                return self._before
        while True:
            try:
                async with flow.planner.switch.stoppable():
                    ended = await self._part()
            except Stopped:
                ended = RunFinished(status="stopped", finish_reason="stopped", message=STOPPED)
            if ended is not None:
                if isinstance(ended, RunFinished):
                    why = "stopped" if ended.status == "stopped" else ended.message or "broken off"
                    await block_open_steps(flow, why)
                return ended

    async def _part(self) -> Ended | None:
        """Runs the next phase of the flow. Returns how the run ends, or None if it continues."""
        flow = self._flow
        await flow.planner.take_steering()
        history = await flow.history()
        plan = await flow.find_plan()
        new = unseen_messages(history, plan.seen_message_id) if plan else []
        if plan is None or self._is_past(plan, new):
            return await make_plan(flow, self._left())
        is_answer = waiting_step(plan) is not None
        if plan.run_id != flow.run_id or plan.stage == "choice" or is_answer:
            if plan.run_id == flow.run_id and not new:
                left = self._left()
                if is_answer and left is not None and ends_run(left):
                    return left
                if plan.stage == "choice" and (step := blocked_step(plan)) is not None:
                    text, sign = write_blocked_question(plan, step), FlowMessageTag(phase="asked", key=step.key)
                    flow.add_message(history, sign, f"People are asked:\n{text}")
                    reply = Reply(kind="ask", text=text, options=tuple(CHOICES.values()))
                    return RunFinished(status="completed", finish_reason="agent_terminated", reply=reply)
            choice = parse_step_choice(new[-1]) if new and not is_answer else None
            if plan.stage != "choice" and choice != "again":
                choice = None  # users were not asked to choose
            newest = new[-1].message_id if new else ""
            await flow.change_plan(plan, lambda plan: apply_answer(plan, choice, flow.run_id, newest))
            return None
        if plan.stage == "closed":
            return _answer(f"{GIVEN_UP} {plain_report(plan)}", plan)
        if new and current_step(plan) is None:
            return await review_plan(flow, plan, self._left())
        if not plan.steps:
            return _answer(EMPTY, plan)
        if next_step(plan) is None:
            return await self._report(plan, history)
        if flow.is_used_up(history):
            limit = f"The limit of {flow.planner.policy.turns_max} turns is reached."
            return RunFinished(status="completed", finish_reason="max_iterations", message=limit, can_continue=True)
        left = self._left()
        begun = await begin_step(flow, plan)
        step = current_step(begun) if begun else None
        return await run_step(flow, begun, step, history, left) if begun and step else None

    def _is_past(self, plan: Plan, new: Sequence[Message]) -> bool:
        """Returns whether the new messages need a new plan because the existing plan is closed or completed."""
        is_ours = plan.run_id == self._flow.run_id
        if plan.stage == "closed":
            return bool(new) or not is_ours
        if not plan.steps and new and parse_step_choice(new[-1]) is not None:
            return False
        return not is_ours and is_over(plan) and bool(new)

    async def _report(self, plan: Plan, history: Sequence[Message]) -> Ended | None:
        flow = self._flow
        sign = FlowMessageTag(phase="report", key=plan.plan_id + plan.seen_message_id)
        ended = self._left()
        if ended is None or newest_tag(history) != sign:
            if flow.is_used_up(history):
                return _answer(plain_report(plan), plan)
            history = flow.add_message(history, sign, final_answer_request_text(plan))
            context = restrict_tools(flow.planner, REPORT_TOOLS)
            try:
                ended = await flow.run_turns(context, history, flow.policy.report_turns_max)
            except EmptyResponse:
                return _answer(plain_report(plan), plan)
        if isinstance(ended, Approval) or ends_run(ended):
            return ended
        now = await flow.find_plan()
        if now is not None and now.stage == "going" and next_step(now) is not None:
            return None  # users added a step while the model wrote the answer
        reply = ended.reply or Reply(kind="answer", text="")
        return _answer(reply.whole_text or plain_report(plan), plan, reply.attachments)

    def _left(self) -> Ended | None:
        """Returns the result of the previous attempt on the first call, and None on later calls."""
        left, self._before = self._before, None
        return left


def _answer(text: str, plan: Plan, attachments: tuple[str, ...] = ()) -> RunFinished:
    files = tuple(dict.fromkeys((*plan_attachments(plan), *attachments)))
    reply = Reply(kind="answer", text=text.strip(), attachments=files)
    return RunFinished(status="completed", finish_reason="stop", reply=reply)
