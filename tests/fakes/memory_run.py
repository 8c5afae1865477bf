"""Executes runs in memory, without stores, with a fake model and the tools that a test supplies."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.domain.approval import Approval
from core.domain.errors import RunError
from core.domain.events import AgentEvent, MessageAdded, RunFinished, ToolStarted
from core.domain.messages import Message
from core.domain.threads import ToolCallRecord
from core.loop.loop import run_agent
from core.loop.run_answer import recover_answer
from core.loop.run_context import LoopPolicy, RunContext, TurnStart
from core.ports import ModelDelta, ModelRequest, Sandbox
from core.prompt.system_prompt import RunPrompt
from core.stores import UsageEntry
from core.tasks import StopSwitch
from core.tools.tool import Tool, ToolContext, ToolSet
from tests.fakes.streamed_model import StreamedModel

THREAD_ID = "thread"


@dataclass
class MemoryRunLog:
    """A RunLog that keeps everything in memory, and checks that a call is recorded before it runs."""

    events: list[AgentEvent] = field(default_factory=list[AgentEvent])
    records: dict[tuple[str, str], ToolCallRecord] = field(default_factory=dict[tuple[str, str], ToolCallRecord])
    usage: list[UsageEntry] = field(default_factory=list[UsageEntry])
    durable: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def emit(self, event: AgentEvent) -> None:
        self.events.append(event)

    def start_call(self, record: ToolCallRecord, event: ToolStarted) -> None:
        key = (record.turn_id, record.call_id)
        assert key not in self.records
        self.records[key] = record
        self.events.append(event)

    def finish_call(self, record: ToolCallRecord) -> None:
        key = (record.turn_id, record.call_id)
        assert key in self.durable, "the call ran before its record was durable"
        self.records[key] = record
        if record.state == "started":
            self.durable.discard(key)

    def record_usage(self, entry: UsageEntry) -> None:
        self.usage.append(entry)

    async def commit(self) -> None:
        self.durable |= {*self.records}

    @property
    def messages(self) -> list[Message]:
        return [event.message for event in self.events if isinstance(event, MessageAdded)]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@dataclass
class MemoryRun:
    """Runs the loop on a history in memory. Messages in `steering` are added before the next turn."""

    model: StreamedModel
    tools: Sequence[Tool[Any]] = ()
    dialect: Dialect = field(default_factory=NativeDialect)
    policy: LoopPolicy = field(default_factory=LoopPolicy)
    log: MemoryRunLog = field(default_factory=MemoryRunLog)
    switch: StopSwitch = field(default_factory=StopSwitch)
    steering: list[Message] = field(default_factory=list[Message])
    budget_error: RunError | None = None
    sandbox: Sandbox | None = None
    history: tuple[Message, ...] = ()
    run_id: str = "run"
    budgets: list[str] = field(default_factory=list[str])
    """What each turn is told of the budget."""

    async def start(self, text: str, *, turns_done: int = 0) -> RunFinished | Approval:
        first = replace(user_message(text), run_id=self.run_id)
        history, context = [*self.history, first], self.context()
        written, _ = await recover_answer(history, self._calls, context)
        return await run_agent(history, context, turns_done=turns_done, written=written)

    async def _calls(self) -> list[ToolCallRecord]:
        return [*self.log.records.values()]

    def context(self) -> RunContext:
        return RunContext(
            model="played",
            prompt=RunPrompt(system="You are a test."),
            dialect=self.dialect,
            toolbox=ToolSet({tool.name: tool for tool in self.tools}),
            tool_context=ToolContext(
                thread_id=THREAD_ID, run_id=self.run_id, sandbox=self._open_sandbox, emit=self.log.emit
            ),
            policy=self.policy,
            run_log=self.log,
            ask_model=self._ask_model,
            take_steering=self._take_steering,
            begin_turn=self._begin_turn,
            switch=self.switch,
        )

    def _ask_model(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return self.model.stream(request)

    async def _open_sandbox(self) -> Sandbox:
        assert self.sandbox is not None, "these tools need no sandbox"
        return self.sandbox

    async def _take_steering(self) -> Sequence[Message]:
        taken = [replace(one, run_id=self.run_id) for one in self.steering]
        self.steering.clear()
        for message in taken:
            self.log.emit(MessageAdded(message=message))
        return taken

    async def _begin_turn(self) -> TurnStart:
        heard = await self._take_steering()
        if self.budget_error is not None:
            raise self.budget_error
        return TurnStart(heard, self.budgets.pop(0) if self.budgets else "")


def user_message(text: str) -> Message:
    return Message(type="user", content={"role": "user", "content": text}, is_llm_message=True, thread_id=THREAD_ID)
