"""The parts of a planning flow: the planner, the team, the stored plan and the limits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from core.context.summary import count_turns
from core.domain.approval import Approval
from core.domain.events import ChecklistChanged, MessageAdded, RunFinished
from core.domain.messages import Message
from core.domain.plans import Plan, PlanStore, build_checklist
from core.domain.threads import Run, Thread, ToolCallRecord
from core.flow.flow_messages import FlowMessageTag, flow_message, newest_tag
from core.flow.plan_changes import Change, change_plan, flow_plan, recorded_members
from core.loop.loop import run_agent
from core.loop.run_answer import recover_answer
from core.loop.run_context import RunContext, RunLog
from core.run.agent_config import AgentConfig, build_agent_config
from core.run.deps import RunDeps
from core.run.recorder import RunRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPolicy:
    """Limits of a flow: turns per phase, and attempts per step. All turns also count towards the run's limit."""

    plan_turns_max: int = 3
    step_turns_max: int = 40
    report_turns_max: int = 8
    tries_max: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMember:
    """An agent that can run steps: its version, its description for the planner, and its run context."""

    agent_version_id: str
    description: str
    context: RunContext


@dataclass(slots=True)
class ChecklistPublisher:
    """Publishes the plan as a checklist for users. Skips a checklist that equals the last published one."""

    run_log: RunLog
    drawn: ChecklistChanged | None = None

    def show(self, plan: Plan) -> None:
        new = build_checklist(plan)
        if new != self.drawn:
            self.drawn = new
            self.run_log.emit(new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A planning flow of one run.

    `team` maps the agent names that steps can start with to members; steps without such a name are run by the planner.
    `history` commits pending entries and returns what has happened in the thread. `calls` returns the recorded
    tool calls of the run."""

    planner: RunContext
    team: Mapping[str, TeamMember]
    plans: PlanStore
    history: Callable[[], Awaitable[Sequence[Message]]]
    calls: Callable[[], Awaitable[Sequence[ToolCallRecord]]]
    checklist: ChecklistPublisher
    policy: FlowPolicy = field(default_factory=FlowPolicy)

    @property
    def thread_id(self) -> str:
        return self.planner.tool_context.thread_id

    @property
    def run_id(self) -> str:
        return self.planner.tool_context.run_id

    @property
    def run_log(self) -> RunLog:
        return self.planner.run_log

    @property
    def team_descriptions(self) -> Mapping[str, str]:
        return {name: member.description for name, member in self.team.items()}

    @property
    def members(self) -> Mapping[str, str]:
        """The agent version ids of the team by name, in the form that plans store."""
        return {name: member.agent_version_id for name, member in self.team.items()}

    def is_used_up(self, history: Sequence[Message]) -> bool:
        """Returns whether the run has reached its turn limit."""
        return count_turns(history, self.run_id) >= self.planner.policy.turns_max

    async def run_turns(
        self, context: RunContext, history: Sequence[Message], turns_max: int
    ) -> RunFinished | Approval:
        """Runs `run_agent` for up to `turns_max` more turns, but never beyond the run's own turn limit."""
        done, (written, _) = count_turns(history, self.run_id), await recover_answer(history, self.calls, context)
        until = min(self.planner.policy.turns_max, done + turns_max)
        context = replace(context, policy=replace(context.policy, turns_max=until))
        return await run_agent(history, context, turns_done=done, written=written)

    def add_message(self, history: Sequence[Message], sign: FlowMessageTag, text: str) -> Sequence[Message]:
        """Returns the history with the new flow message, unless the newest flow message already has this tag."""
        if newest_tag(history) == sign:
            return history
        message = flow_message(sign, text, thread_id=self.thread_id, run_id=self.run_id)
        self.run_log.emit(MessageAdded(message=message))
        return (*history, message)

    async def find_plan(self) -> Plan | None:
        """Returns the newest plan that a flow of this thread runs or has run, or None."""
        return flow_plan(await self.plans.read(self.thread_id))

    async def change_plan(self, plan: Plan, how: Change) -> Plan | None:
        """Changes the stored plan, publishes the checklist and returns the new plan, or None if the plan is gone.

        Commits pending entries first, so that the plan is never ahead of the stored conversation."""
        await self.run_log.commit()
        after = await self.plans.change(self.thread_id, lambda known: change_plan(known, plan.plan_id, how))
        new = flow_plan(after)
        if new is not None:
            self.checklist.show(new)
        return new


async def build_flow(
    config: AgentConfig,
    run: Run,
    thread: Thread,
    context: RunContext,
    deps: RunDeps,
    recorder: RunRecorder,
    build_context: Callable[[AgentConfig], RunContext],
) -> Flow | None:
    """Returns the run's planning flow, or None if its agent does not plan. `build_context` builds the run context of a
    member.

    Members keep the agent versions that the run started with. Other members are left out if their agent no longer
    exists. Raises RunError if a version that the run started with is no longer available."""
    agent = config.agent
    if agent.flow != "planning":
        return None
    begun = recorded_members(await deps.stores.plans.read(run.thread_id), run.run_id)
    team: dict[str, TeamMember] = {}
    for name in agent.team:
        version = await deps.agents.roster.find_member_version(name, begun.get(name))
        if version is None:
            continue
        own = await build_agent_config(version.definition, run, thread, deps, recorder)
        team[name] = TeamMember(
            agent_version_id=version.agent_version_id,
            description=version.definition.description,
            context=build_context(own),
        )

    async def read_history() -> Sequence[Message]:
        await recorder.commit()
        return await deps.stores.conversations.history(run.thread_id)

    return Flow(
        planner=context,
        team=team,
        plans=deps.stores.plans,
        history=read_history,
        checklist=ChecklistPublisher(recorder),
        calls=partial(deps.stores.journal.tool_call_records, run.run_id),
    )
