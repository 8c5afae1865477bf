"""The configuration of one run, which depends on its agent: model, prompt, dialect, tools, knowledge and budget."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from core.agents.definition import AgentDefinition
from core.context.background_messages import is_from_person
from core.context.todo_file import todo_text_in_history
from core.dialects.dialect import Dialect
from core.dialects.selection import select_dialect
from core.domain.budget import exhausted_message, utc_day_start
from core.domain.errors import BudgetExceeded
from core.domain.messages import Message
from core.domain.threads import Run, Thread, ThreadInput, Usage
from core.knowledge.knowledge_base import RunKnowledge
from core.knowledge.query_expansion import model_asker
from core.loop.loop import RunContext
from core.model_usage import build_usage_pricer
from core.prompt.system_prompt import PromptLayers, add_layers
from core.run.deps import RunDeps
from core.run.recorder import Charge, RunRecorder
from core.stores import UsageEntry
from core.tasks import Stopped, StopSwitch
from core.tools.tool import ToolSet


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The settings of one run. `agent` is None if the deployment has no agent definitions."""

    agent: AgentDefinition | None
    model: str
    system_prompt: str
    dialect: Dialect
    toolbox: ToolSet
    desk: RunKnowledge | None


async def load_agent_config(
    run: Run, thread: Thread, engine: RunDeps, recorder: RunRecorder, switch: StopSwitch
) -> AgentConfig:
    """Returns the configuration of the run; a resumed run keeps the agent version that it started with.

    Raises AgentError if the agent or that version no longer exists.
    """
    agent: AgentDefinition | None = None
    if engine.roster is not None:
        version = await engine.roster.version_for(run, thread)
        recorder.sign(version, is_new=run.agent_version_id is None)
        agent = version.definition
    return await build_agent_config(agent, run, engine, recorder, switch)


async def build_agent_config(
    agent: AgentDefinition | None,
    run: Run,
    engine: RunDeps,
    recorder: RunRecorder,
    switch: StopSwitch,
) -> AgentConfig:
    """Returns the configuration of a run of the agent.

    A stop request skips the slow indexing of the agent's documents; the agent loop then ends the run.
    """
    model = _model_of(agent, engine)
    with suppress(Stopped):
        async with switch.stoppable():
            await _learn(agent, engine)
    return AgentConfig(
        agent=agent,
        model=model,
        system_prompt=_prompt(agent, engine),
        dialect=_dialect(agent, model, engine),
        toolbox=await _toolbox(agent, engine),
        desk=_run_knowledge(agent, model, run.thread_id, engine, recorder),
    )


async def dialect_for_run(run: Run, thread: Thread, engine: RunDeps) -> Dialect:
    """Returns the dialect in which the run's agent writes tool calls. Raises AgentError if the agent is gone."""
    agent = (await engine.roster.version_for(run, thread)).definition if engine.roster else None
    return _dialect(agent, _model_of(agent, engine), engine)


def _model_of(agent: AgentDefinition | None, engine: RunDeps) -> str:
    return (agent and agent.model) or engine.model


def _prompt(agent: AgentDefinition | None, engine: RunDeps) -> str:
    role = PromptLayers(agent=agent.prompt if agent else "")
    return add_layers(engine.system_prompt(), role)


def _dialect(agent: AgentDefinition | None, model: str, engine: RunDeps) -> Dialect:
    if agent and agent.dialect:
        return select_dialect(model, agent.dialect)
    is_by_model = engine.dialect_setting == "auto" and model != engine.model
    return select_dialect(model, "auto") if is_by_model else engine.dialect


async def _toolbox(agent: AgentDefinition | None, engine: RunDeps) -> ToolSet:
    """Returns the run's tools: the built-in ones that the agent may use, and those that its MCP servers offer now."""
    box = engine.toolbox
    if agent is not None:
        box = box.only(agent.tools.has)
    if engine.more_tools is None:
        return box
    servers = agent.mcp_servers if agent else None
    return box.with_tools(await engine.more_tools(None if servers is None else frozenset(servers)))


async def _learn(agent: AgentDefinition | None, engine: RunDeps) -> None:
    if agent is not None and agent.knowledge and engine.learn is not None:
        await engine.learn(agent.agent_id)


def _run_knowledge(
    agent: AgentDefinition | None,
    model: str,
    thread_id: str,
    engine: RunDeps,
    recorder: RunRecorder,
) -> RunKnowledge | None:
    if engine.knowledge_base is None:
        return None
    spent = usage_recorder(recorder)
    return RunKnowledge(
        knowledge_base=engine.knowledge_base.reporting_usage_to(spent),
        thread_id=thread_id,
        agent_id=agent.agent_id if agent and agent.knowledge else None,
        ask=model_asker(engine.ask_model, model, on_usage=spent),
    )


def usage_recorder(recorder: RunRecorder) -> Callable[[str, Usage], None]:
    """Returns a callback that records the usage of model calls made outside the run's turns."""

    def book(model: str, usage: Usage) -> None:
        recorder.used(UsageEntry(turn_id="", model=model, usage=usage))

    return book


def usage_pricer(engine: RunDeps) -> Charge:
    """Returns a function that adds the price to a usage entry and counts the usage in the metrics."""

    charge = build_usage_pricer(engine.price_of, engine.figures)
    return lambda entry: replace(entry, usage=charge(entry.model, entry.usage))


async def check_budget(run_id: str, engine: RunDeps, recorder: RunRecorder) -> None:
    """Raises BudgetExceeded if the run's or the day's budget is used up."""
    budget, ledger = engine.budget, engine.ledger
    if ledger is None or not budget.is_set:
        return
    await recorder.commit()
    spent = await ledger.spending(run_id, since=utc_day_start(datetime.now(UTC)))
    if (why := exhausted_message(budget, spent)) is not None:
        raise BudgetExceeded(why)


def add_todo_to_prompt(around: RunContext, history: Sequence[Message]) -> RunContext:
    """Returns the context with the current todo.md in its system prompt.

    The prompt does not follow later changes of the file, so that the provider's prompt cache stays valid.
    """
    todo = PromptLayers(todo=todo_text_in_history(history) or "")
    return replace(around, system_prompt=add_layers(around.system_prompt, todo))


async def add_knowledge_to_prompt(
    around: RunContext,
    desk: RunKnowledge,
    history: Sequence[Message],
    read_inputs: Callable[[], Awaitable[Sequence[ThreadInput]]],
) -> RunContext:
    """Returns the context with the documents that match the request in its system prompt.

    Skips the search if the knowledge base is empty. Does not call a model.
    """
    if not await desk.has_entries():
        return around
    inputs = await read_inputs()
    told = [str(one.content.get("content")) for one in history if is_from_person(one)]
    question = " ".join(one.text for one in inputs) or (told[-1] if told else "")
    knowledge = PromptLayers(knowledge=await desk.for_prompt(question))
    return replace(around, system_prompt=add_layers(around.system_prompt, knowledge))
