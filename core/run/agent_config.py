"""The configuration of one run, which depends on its agent: model, prompt, dialect, tools, knowledge and budget."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from core.agents.definition import AgentDefinition
from core.context.background_messages import is_from_person
from core.context.untrusted_text import wrap_untrusted
from core.dialects.dialect import Dialect
from core.dialects.selection import select_dialect
from core.domain.budget import PlannedCall, Reservation, Spent, find_exhausted, price_usage, utc_day
from core.domain.errors import BudgetExceeded
from core.domain.events import ActivityChanged, ErrorRaised
from core.domain.messages import Message
from core.domain.threads import Run, Thread, ThreadInput, Usage
from core.knowledge.knowledge_base import RunKnowledge
from core.knowledge.query_expansion import build_model_asker
from core.loop.run_context import RunContext, TakeSteering, TurnStart
from core.mcp.refused_tools import limit_tools
from core.model_usage import build_usage_pricer
from core.ports import Sandbox
from core.prompt.system_prompt import RunPrompt
from core.run.deps import AgentDefaults, RunDeps
from core.run.recorder import Charge, RunRecorder
from core.stores import LoadedRun, UsageEntry
from core.tasks import StopSwitch
from core.tools.catalogue import all_tools
from core.tools.schedules import RunSchedules, build_schedule_tools
from core.tools.tool import ThreadChat, ThreadMessages, ToolBudget, ToolContext, ToolSet

DOCUMENT_PERCENT = 75
"""The maximum share of the model's room that one document may fill. It is not larger because tokens are only
estimated."""
BUDGET_RETRY_SECONDS = 0.5
"""The pause between two attempts to reserve a call while calls of other runs may use up the rest of the budget."""

ReserveTurn = Callable[[PlannedCall], Awaitable[tuple[Sequence[Message], Reservation]]]
"""Does what `TakeSteering` does, and reserves what the turn's model call may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The settings of one run."""

    agent: AgentDefinition
    model: str
    prompt: RunPrompt
    dialect: Dialect
    toolbox: ToolSet
    knowledge: RunKnowledge


async def load_agent_config(run: Run, thread: Thread, deps: RunDeps, recorder: RunRecorder) -> AgentConfig:
    """Returns the configuration of the run; a resumed run keeps the agent version that it started with.

    Raises RunError if the agent or that version no longer exists.
    """
    version = await deps.agents.roster.version_for(run, thread)
    recorder.set_agent(version, is_new=run.agent_version_id is None)
    return await build_agent_config(version.definition, run, thread, deps, recorder)


async def build_agent_config(
    agent: AgentDefinition, run: Run, thread: Thread, deps: RunDeps, recorder: RunRecorder
) -> AgentConfig:
    """Returns the configuration of a run of the agent."""
    model = agent.model or deps.defaults.model
    if agent.knowledge:
        await deps.agents.index_knowledge(agent.agent_id)
    own_tools = deps.defaults.toolbox.filter_names(agent.tools.has)
    toolbox = limit_tools(own_tools.with_tools(await deps.agents.mcp_tools(_servers(agent))))
    options = deps.agents.roster.options_in(thread.address.settings_channel_id, agent)
    reserved = deps.limits.context_policy.limit_of(model).reserved
    answer_tokens = min(reserved, options.answer_tokens or reserved)
    base = deps.defaults.prompt(thread.address, answer_tokens)
    base = base.for_tools(toolbox.tools, all_tools())
    if servers := deps.agents.mcp_missing(_servers(agent)):
        named = "; ".join(f"{name} ({why})" for name, why in sorted(servers.items()))
        missing = f"The tools of these MCP servers are missing in this run: {named}."
        base = base.with_state(
            "missing MCP servers", f"{missing} Do not stand in for them; say so if the task needs them."
        )
        recorder.emit(ErrorRaised(message=missing))
    for name, text in sorted(deps.agents.mcp_instructions(_servers(agent)).items()):
        fenced = wrap_untrusted(text, source=f"the MCP server {name}")
        told = f"What the MCP server {name} says about its tools:\n\n{fenced}"
        base = base.with_state(f"MCP server {name}", told)
    spent = build_usage_recorder(recorder)
    ask = build_model_asker(deps.models.ask_model, model, on_usage=spent)
    budget = RunBudget(run, thread, model, deps, recorder)

    async def ask_within_budget(question: str) -> str:
        await budget.reserve_next_call()
        recorder.emit(ActivityChanged(text="Looking into the documents"))
        return await ask(question)

    return AgentConfig(
        agent=agent,
        model=model,
        prompt=base.with_system("Your role here", agent.prompt),
        dialect=select_dialect_of_agent(agent, deps.defaults),
        toolbox=toolbox,
        knowledge=RunKnowledge(
            knowledge_base=deps.stores.knowledge_base.reporting_usage_to(spent),
            thread_id=run.thread_id,
            agent_id=agent.agent_id,
            has_own_files=bool(agent.knowledge),
            ask=ask_within_budget,
            room_tokens=deps.limits.context_policy.limit_of(model).room * DOCUMENT_PERCENT // 100,
        ),
    )


def select_dialect_of_agent(agent: AgentDefinition, defaults: AgentDefaults) -> Dialect:
    """Returns the dialect in which the agent writes tool calls."""
    model = agent.model or defaults.model
    if agent.dialect:
        return select_dialect(model, agent.dialect)
    is_by_model = defaults.dialect_setting == "auto" and model != defaults.model
    return select_dialect(model, "auto") if is_by_model else defaults.dialect


def _servers(agent: AgentDefinition) -> frozenset[str] | None:
    return None if agent.mcp_servers is None else frozenset(agent.mcp_servers)


def build_usage_recorder(recorder: RunRecorder) -> Callable[[str, Usage], None]:
    """Returns a callback that records the usage of model calls made outside the run's turns."""

    def book(model: str, usage: Usage) -> None:
        recorder.record_usage(UsageEntry(turn_id="", model=model, usage=usage))

    return book


def build_entry_pricer(deps: RunDeps) -> Charge:
    """Returns a function that adds the price to a usage entry and counts the usage in the metrics."""

    charge = build_usage_pricer(deps.models.price_of, deps.metrics)
    return lambda entry: replace(entry, usage=charge(entry.model, entry.usage))


class RunBudget:
    """The budget of the calls of one model in one run."""

    def __init__(self, run: Run, thread: Thread, model: str, deps: RunDeps, recorder: RunRecorder) -> None:
        self._run_id = run.run_id
        self._model = model
        self._deps = deps
        self._recorder = recorder
        # in a chat, users can send commands
        self._is_chat = thread.address.platform != "api"

    def plan_call(self) -> PlannedCall:
        """Returns a call that fills the model's context window, to reserve what it may cost."""
        limits = self._deps.limits
        limit = limits.context_policy.limit_of(self._model)
        usage = Usage(input_tokens=limit.room, output_tokens=limit.reserved)
        most = Spent().plus(price_usage(usage, self._deps.models.price_of(self._model)))
        return PlannedCall(most, limits.budget, utc_day(datetime.now(UTC)))

    async def wait_for_reservation(self, reservation: Reservation) -> str:
        """Returns a sentence for the model about what is left of the run's budget, or an empty text if the run has no
        limit in US dollars.

        If the reservation is not granted, waits until the calls of other runs are over. Raises BudgetExceeded if the
        run's or the day's budget is used up."""
        while True:
            spent = reservation.spending
            end = find_exhausted(self._deps.limits.budget, spent, is_chat=self._is_chat)
            if end is not None:
                raise BudgetExceeded(end.sentence, can_continue=end.scope == "run")
            if reservation.is_granted:
                break
            await asyncio.sleep(BUDGET_RETRY_SECONDS)
            reservation = await self._reserved()
        limit = spent.changed_limits.get("run", self._deps.limits.budget.run)
        if limit.usd is None:
            return ""
        return describe_budget_left(limit.usd, spent.run.cost_usd)

    async def reserve_next_call(self) -> None:
        """Stores what the turn's calls have cost so far, then reserves another call. Raises BudgetExceeded."""
        await self._recorder.commit()
        await self.wait_for_reservation(await self._reserved())

    async def _reserved(self) -> Reservation:
        return await self._deps.stores.ledger.reserve(self._run_id, self.plan_call())


def describe_budget_left(limit_usd: float, spent_usd: float) -> str:
    """Returns a sentence about what is left of a run's budget, in tenths, so that it changes at most ten times. The
    limit is above 0, because a run with a budget of 0 makes no call."""
    tenths = math.ceil(10 * max(0.0, limit_usd - spent_usd) / limit_usd)
    left = f"At most {10 * tenths}% of it is left." if tenths < 10 else "All of it is left."
    return f"The run may cost {limit_usd:.2f} US dollars. {left}"


def build_tool_context(
    loaded: LoadedRun,
    deps: RunDeps,
    recorder: RunRecorder,
    *,
    sandbox: Callable[[], Awaitable[Sandbox]],
    chat: ThreadChat | None = None,
    must_answer: Callable[[], bool] = lambda: False,
) -> ToolContext:
    """Returns what the tools of all agents of the run share. `sandbox` opens the thread's sandbox; `chat` reads the
    chat thread, or is None without one."""
    conversations, thread_id = deps.stores.conversations, loaded.thread.thread_id

    async def has_unread() -> bool:
        return bool(await conversations.unread_inputs(thread_id))

    return ToolContext(
        thread_id=thread_id,
        run_id=loaded.run.run_id,
        plans=deps.stores.plans,
        emit=recorder.emit,
        sandbox=sandbox,
        links=deps.chat.links(thread_id),
        messages=ThreadMessages(
            find=partial(conversations.message, thread_id),
            read_all=partial(conversations.llm_messages, thread_id),
            chat=chat,
        ),
        outside=deps.web,
        metrics=deps.metrics,
        has_unread=has_unread,
        must_answer=must_answer,
    )


def build_run_context(
    config: AgentConfig,
    loaded: LoadedRun,
    deps: RunDeps,
    recorder: RunRecorder,
    tool_context: ToolContext,
    *,
    switch: StopSwitch,
    take_steering: TakeSteering,
    reserve: ReserveTurn,
) -> RunContext:
    """Returns the context of one agent's turns in the run. `tool_context` is what all agents of the run share."""
    stores, run, thread = deps.stores, loaded.run, loaded.thread
    budget = RunBudget(run, thread, config.model, deps, recorder)
    has_chat = tool_context.messages is not None and tool_context.messages.chat is not None
    toolbox = config.toolbox if has_chat else config.toolbox.without(["chat"])
    schedules = None
    if run.requester is not None:
        schedules = RunSchedules(
            store=stores.schedules,
            limits=deps.limits.schedules,
            request_key=run.run_id,
            address=thread.address,
            thread_id=thread.thread_id,
            agent_id=run.agent_id or thread.agent_id,
            requester=run.requester,
            requested_at=run.requested_at or run.created_at,
            time_zone=deps.defaults.time_zone,
            known=loaded.schedules,
        )
    toolbox = toolbox.with_replaced(build_schedule_tools(schedules))

    async def begin_turn() -> TurnStart:
        heard, reservation = await reserve(budget.plan_call())
        return TurnStart(heard, await budget.wait_for_reservation(reservation))

    return RunContext(
        model=config.model,
        prompt=config.prompt,
        dialect=config.dialect,
        toolbox=toolbox,
        tool_context=replace(
            tool_context,
            knowledge=config.knowledge,
            budget=ToolBudget(check=budget.reserve_next_call, spent=build_usage_recorder(recorder)),
        ),
        policy=replace(deps.limits.policy, granted=loaded.granted),
        run_log=recorder,
        ask_model=deps.models.ask_model,
        take_steering=take_steering,
        begin_turn=begin_turn,
        switch=switch,
        context_policy=deps.limits.context_policy,
        options=deps.agents.roster.options_in(thread.address.settings_channel_id, config.agent),
    )


async def add_knowledge_to_prompt(
    context: RunContext,
    knowledge: RunKnowledge,
    history: Sequence[Message],
    read_inputs: Callable[[], Awaitable[Sequence[ThreadInput]]],
) -> RunContext:
    """Returns the context with the documents that match the request in its prompt.

    Skips the search if the knowledge base is empty. Asks the model for keywords if no words of the request match.
    """
    if not await knowledge.has_entries():
        return context
    inputs = await read_inputs()
    told = [str(one.content.get("content")) for one in history if is_from_person(one)]
    question = " ".join(one.text for one in inputs) or (told[-1] if told else "")
    found = await knowledge.render_relevant_entries(question)
    return replace(context, prompt=context.prompt.with_knowledge(found))
