"""The settings and services that all turns of a run share."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.context.window import ContextPolicy
from core.dialects.dialect import Dialect
from core.domain.events import AgentEvent, ToolStarted
from core.domain.messages import Message
from core.domain.model_options import NO_OPTIONS, ModelOptions
from core.domain.threads import ToolCallRecord
from core.ports import ModelDelta, ModelRequest
from core.prompt.system_prompt import RunPrompt
from core.stores import UsageEntry
from core.tasks import StopSwitch
from core.tools.tool import Strategy, ToolContext, ToolSet

AskModel = Callable[[ModelRequest], AsyncGenerator[ModelDelta, None]]

TakeSteering = Callable[[], Awaitable[Sequence[Message]]]
"""Stores, emits and returns the messages that users have written since the last turn, oldest first."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """What users have written since the last turn, and a sentence for the model about what is left of the run's budget.
    The sentence may be empty."""

    heard: Sequence[Message]
    budget_left: str = ""


BeginTurn = Callable[[], Awaitable[TurnStart]]
"""Does what `TakeSteering` does, and reserves what the turn's model call may cost. Raises BudgetExceeded if the budget
is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """Limits and settings of the agent loop.

    At most `calls_max` calls of one answer run; the others get an error. Text dialects stop reading after
    `xml_calls_max` calls. 0 means no limit. `granted` holds the grants of the calls that no longer need approval in
    this thread. Only if `shows_reasoning` is set, the text of the model's reasoning is part of the run's events.
    """

    turns_max: int = 100
    continuations_max: int = 25
    strategy: Strategy = "ordered"
    executes_on_stream: bool = True
    is_streamed: bool = True
    xml_calls_max: int = 0
    calls_max: int = 32
    granted: frozenset[str] = frozenset()
    shows_reasoning: bool = False


class RunLog(Protocol):
    """Stores and publishes the events of a run in the order in which they are emitted."""

    def emit(self, event: AgentEvent) -> None:
        """Adds the event to the next batch, which is published once it is stored. Chunks are published and not
        stored."""
        ...

    def start_call(self, record: ToolCallRecord, event: ToolStarted) -> None:
        """Records the call. Run it only after the next `commit`, because the record must be durable first."""
        ...

    def finish_call(self, record: ToolCallRecord) -> None: ...

    def record_usage(self, entry: UsageEntry) -> None:
        """Adds the usage to the ledger at the next commit."""
        ...

    async def commit(self) -> None:
        """Returns once every event and record so far is durable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The settings and services that all turns of a run share."""

    model: str
    prompt: RunPrompt
    dialect: Dialect
    toolbox: ToolSet
    tool_context: ToolContext
    policy: LoopPolicy
    run_log: RunLog
    ask_model: AskModel
    take_steering: TakeSteering
    begin_turn: BeginTurn
    switch: StopSwitch
    context_policy: ContextPolicy = field(default_factory=ContextPolicy)
    options: ModelOptions = NO_OPTIONS
