"""Runs the tool calls of one turn, in parallel or in order. A failing call does not affect the others."""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from pydantic import JsonValue

from core.context.todo_file import TodoTracker
from core.domain.approval import Approval
from core.domain.errors import AgentError, LeaseLost, StorageUnavailable, ToolError
from core.domain.events import AgentEvent, ToolFinished, ToolStarted
from core.domain.messages import JsonObject, Message, ToolCall
from core.domain.threads import Reply, ToolCallRecord
from core.stores import UsageEntry
from core.tools.tool import PreparedCall, ToolContext, ToolOutput, ToolSet, prepare_call

log = logging.getLogger(__name__)

OUTPUT_CHARACTERS_MAX = 60_000
Outcome = Literal["completed", "failed", "error"]


class RunLog(Protocol):
    """Stores and publishes the events of a run in the order in which they are emitted."""

    def emit(self, event: AgentEvent) -> None:
        """Publishes the event after the transaction that stores it. Chunks are published immediately and not stored."""
        ...

    def start_call(self, record: ToolCallRecord, event: ToolStarted) -> None:
        """Records the call. Run it only after the next `commit`, because the record must be durable first."""
        ...

    def finish_call(self, record: ToolCallRecord) -> None: ...

    def used(self, entry: UsageEntry) -> None:
        """Adds the usage to the ledger at the next commit."""
        ...

    async def commit(self) -> None:
        """Returns once every event and record so far is durable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The outcome of one tool call. `result` is `{"success", "output", "error"}`, as the model receives it."""

    call: ToolCall
    outcome: Outcome
    result: JsonObject
    reply: Reply | None = None
    messages: tuple[Message, ...] = ()


@dataclass(slots=True)
class CallRunner:
    """Runs the tool calls of one turn. Keeps the running tasks, the outcomes, and the name of a tool that ends the
    run."""

    turn_id: str
    assistant_message_id: str
    toolbox: ToolSet
    context: ToolContext
    run_log: RunLog
    is_sequential: bool
    group: asyncio.TaskGroup
    metadata_of: "MetadataOf"
    reply: Reply | None = None
    ended_by: str | None = None
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    awaiting: dict[int, PreparedCall] = field(default_factory=dict[int, PreparedCall])
    outcomes: dict[int, CallOutcome] = field(default_factory=dict[int, CallOutcome])
    _todo: TodoTracker = field(default_factory=TodoTracker)
    _recorded: set[int] = field(default_factory=set[int])
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def add(self, call: ToolCall) -> None:
        """Adds the turn's next call and starts it, unless an earlier call ends the run or the call needs approval."""
        index = len(self.calls)
        self.calls.append(call)
        try:
            prepared = self._prepared(call)
        except ToolError as error:
            self.outcomes[index] = failed_outcome(call, str(error))
            return
        if prepared.tool.name in ENDING_TOOLS:
            self.ended_by = prepared.tool.name
        if self._must_wait(prepared):
            self._await_approval(index, call, prepared)
            return
        record = self._record(index, call)
        started = _started(record, prepared.title)
        before = self._tasks[-1] if self._tasks and self.is_sequential else None
        if before is None:
            self.run_log.start_call(record, started)
        work = self._run(record, started, call, prepared, before)
        self._tasks.append(self.group.create_task(work, name=f"tool {call.name}"))

    async def settle(self) -> tuple[CallOutcome, ...]:
        """Waits for all calls and returns their outcomes in call order."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        return tuple(
            self.outcomes[index] for index in range(len(self.calls)) if index in self.outcomes
        )

    def approval(self) -> Approval:
        """Returns the approval to ask for the waiting calls. Also records the calls that could not run at all."""
        for index, outcome in self.outcomes.items():
            if index not in self._recorded:
                record = self._record(index, outcome.call)
                self.run_log.start_call(record, _started(record, outcome.call.name))
                self.run_log.finish_call(replace(record, state="finished", result=outcome.result))
        return Approval(
            turn_id=self.turn_id,
            tools=tuple(prepared.tool.name for prepared in self.awaiting.values()),
            reasons=tuple(prepared.approval or "" for prepared in self.awaiting.values()),
        )

    def _must_wait(self, prepared: PreparedCall) -> bool:
        is_allowed = prepared.tool.name in self.context.approved_tools
        return prepared.approval is not None and not is_allowed

    def _await_approval(self, index: int, call: ToolCall, prepared: PreparedCall) -> None:
        record = replace(self._record(index, call), state="awaiting")
        self.awaiting[index] = prepared
        self.run_log.start_call(record, _started(record, f"{prepared.title} (needs approval)"))

    def unfinished(self, why: str) -> tuple[CallOutcome, ...]:
        """Returns the outcomes in call order. Calls without an outcome get a failed one with the given reason."""
        return tuple(
            self.outcomes.get(index) or failed_outcome(call, why)
            for index, call in enumerate(self.calls)
        )

    def _prepared(self, call: ToolCall) -> PreparedCall:
        if self.ended_by is not None:
            raise ToolError(f"Not run: {self.ended_by} came before it and ends the run.")
        if call.problem is not None:
            raise ToolError(call.problem)
        prepared = prepare_call(call.name, call.arguments, self.toolbox)
        is_free = prepared.approval is not None or not self.awaiting
        if not is_free and (self.is_sequential or prepared.tool.name in ENDING_TOOLS):
            raise ToolError("Not run: a call before it waits for an approval. Call it again then.")
        return prepared

    def _record(self, index: int, call: ToolCall) -> ToolCallRecord:
        self._recorded.add(index)
        return ToolCallRecord(
            run_id=self.context.run_id,
            turn_id=self.turn_id,
            index=index,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            raw=call.raw,
            assistant_message_id=self.assistant_message_id,
            metadata=self.metadata_of(call),
        )

    async def _run(
        self,
        record: ToolCallRecord,
        started: ToolStarted,
        call: ToolCall,
        prepared: PreparedCall,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
            self.run_log.start_call(record, started)
        await self.run_log.commit()
        outcome = await execute_call(call, prepared, self.context)
        self.outcomes[record.index] = outcome
        self.reply = self.reply or outcome.reply
        if outcome.outcome == "completed":
            await self._todo.look(call, self.context.sandbox, self.run_log.emit)
        self.run_log.finish_call(replace(record, state="finished", result=outcome.result))
        if any(not task.done() for task in self._tasks if task is not asyncio.current_task()):
            await self.run_log.commit()


def _started(record: ToolCallRecord, title: str) -> ToolStarted:
    return ToolStarted(index=record.index, call_id=record.call_id, name=record.name, title=title)


class MetadataOf(Protocol):
    def __call__(self, call: ToolCall) -> JsonObject: ...


ENDING_TOOLS = frozenset({"ask", "complete", "web_browser_takeover"})


async def execute_call(call: ToolCall, prepared: PreparedCall, context: ToolContext) -> CallOutcome:
    """Runs a prepared call and returns its outcome. Tool errors become failed outcomes; only LeaseLost,
    StorageUnavailable and cancellation are raised."""
    with context.figures.timed("tool", tool=prepared.tool.name) as timing:
        outcome = await _outcome(call, prepared, context)
        timing.labels["outcome"] = outcome.outcome
    return outcome


async def _outcome(call: ToolCall, prepared: PreparedCall, context: ToolContext) -> CallOutcome:
    tool = prepared.tool
    try:
        output = await _output(prepared, context)
    except ToolError as error:
        return failed_outcome(call, str(error), outcome="failed")
    except AgentError as error:
        log.warning("the tool %s failed: %s", tool.name, error.detail or error)
        return failed_outcome(call, str(error))
    except (LeaseLost, StorageUnavailable):
        raise
    except TimeoutError:
        return failed_outcome(
            call,
            f"{tool.name} did not end within {tool.timeout_seconds:g} s and was given up. Try smaller steps.",
        )
    except Exception as error:
        log.exception("the tool %s broke", tool.name)
        return failed_outcome(call, f"{tool.name} broke ({type(error).__name__}). Try another way.")
    return build_outcome(call, output)


async def _output(prepared: PreparedCall, context: ToolContext) -> str | ToolOutput:
    """Runs the tool with its timeout. Raises RuntimeError if the tool was cancelled from inside; a cancellation of
    the call itself passes through."""
    try:
        async with asyncio.timeout(prepared.tool.timeout_seconds):
            return await prepared.tool.run(prepared.params, context)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("something in the tool was cancelled") from error


def build_outcome(call: ToolCall, output: str | ToolOutput) -> CallOutcome:
    """Returns the outcome of a tool that ran. Output that is too long for the model is cut in the middle."""
    whole = output if isinstance(output, ToolOutput) else ToolOutput(output=output)
    text = _cut(whole.output)
    result: JsonObject = {
        "success": whole.is_success,
        "output": text,
        "error": None if whole.is_success else whole.error,
    }
    return CallOutcome(
        call=call,
        outcome="completed" if whole.is_success else "failed",
        result=result,
        reply=whole.reply,
        messages=whole.messages,
    )


def failed_outcome(call: ToolCall, why: str, *, outcome: Outcome = "error") -> CallOutcome:
    """Returns the outcome of a call that failed or did not run."""
    cut = _cut(why)
    result: JsonObject = {"success": False, "output": None, "error": cut}
    return CallOutcome(call=call, outcome=outcome, result=result)


def tool_finished_event(index: int, outcome: CallOutcome, tool_message_id: str) -> ToolFinished:
    """Returns the event for an ended call. `tool_message_id` is the id of the message with its result."""
    return ToolFinished(
        index=index,
        call_id=outcome.call.call_id,
        name=outcome.call.name,
        outcome=outcome.outcome,
        message=str(outcome.result.get("error") or ""),
        tool_message_id=tool_message_id,
        terminates=outcome.reply is not None,
    )


def _cut(value: JsonValue) -> JsonValue:
    if not isinstance(value, str) or len(value) <= OUTPUT_CHARACTERS_MAX:
        return value
    half = OUTPUT_CHARACTERS_MAX // 2
    left_out = len(value) - 2 * half
    return f"{value[:half]}\n[{left_out} characters are left out here]\n{value[-half:]}"
