"""Runs the tool calls of one turn in their order. A failing call does not affect the others."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import TypeAdapter

from core.context.tokens import count_text, first_tokens, with_token_count
from core.context.untrusted_text import clean_line
from core.dialects.dialect import Dialect
from core.domain.approval import TOO_LONG, Approval
from core.domain.call_consent import AskUsers, Refuse, explain_consent, judge_call
from core.domain.errors import LeaseLost, RunError, StorageUnavailable, ToolError
from core.domain.events import AgentEvent, MessageAdded, ToolFinished, ToolProgressed, ToolStarted
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message, MessageType, ToolCall
from core.domain.network import hosts_opened_by, limit_network
from core.domain.sources import (
    NO_SOURCES,
    SOURCES_KEY,
    Sources,
    dump_sources,
    join_sources,
    offer_addresses,
    sources_read_now,
)
from core.domain.threads import Reply, ToolCallRecord
from core.loop.run_context import RunContext, RunLog
from core.ports import Sandbox
from core.tasks import call_every
from core.tools.shell import exit_code_of, session_left_by_call
from core.tools.tool import PreparedCall, ToolContext, ToolOutput, must_wait_for, prepare_call
from core.tools.workspace.file_changes import in_one_piece

log = logging.getLogger(__name__)

REPLY_KEY = "reply"
"""The metadata key under which an ended call stores the reply that it left, so that no crash or approval loses it."""
_REPLY = TypeAdapter(Reply)
CAUSE_KEY = "cause"
"""The metadata key under which a call that waits for users stores why, if the reason is text that the model had
read."""
RESULT_TOKENS_MAX = 8_000
HEAD_PERCENT = 60
RESULT_CHARACTERS_MAX = 40_000
SAVED_CHARACTERS_MAX = 5_000_000
PROGRESS_AFTER_SECONDS = 10.0
PROGRESS_SECONDS = 5.0
PROGRESS_LINE_CHARACTERS = 200
RESULTS_FOLDER = ".results"
SAVE_SECONDS = 60.0
NOTE_TOKENS = 100
TOKENS_PER_CHARACTER_MAX = 4
TOO_MANY_CALLS = (
    "Not run: this is call {number} of your answer, and at most {most} calls of one answer run. Look at the results of "
    "those first. If you still need this call, make it in your next answer, or do the work of many calls in one script."
)
REFUSED_HOSTS_SHOWN_MAX = 10
HOST_CHARACTERS_MAX = 253
NOT_REACHED = (
    "Programs in the sandbox could not reach {hosts}: nobody in this thread has named it. If the task needs it, run the"
    " command again with `hosts`, and people are asked."
)
Outcome = Literal["completed", "failed", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The outcome of one tool call. `result` is `{"success", "output", "error"}`, as the model receives it, and
    `sources` are the sources of its text."""

    call: ToolCall
    outcome: Outcome
    result: JsonObject
    reply: Reply | None = None
    messages: tuple[Message, ...] = ()
    sources: Sources = NO_SOURCES
    seconds: float = 0.0


@dataclass(slots=True)
class CallRunner:
    """Runs the tool calls of one turn. Keeps the running tasks, the outcomes, and the name of a tool that ends the
    run.

    `sources` are those of the text that the model had read when it wrote the calls. `reasoning` is the opaque reasoning
    that came with the calls. The first record keeps it, because a crash may prevent the assistant message from being
    stored.
    """

    turn_id: str
    assistant_message_id: str
    context: RunContext
    group: asyncio.TaskGroup
    sources: Sources = NO_SOURCES
    reasoning: JsonObject | None = None
    reply: Reply | None = None
    ended_by: str | None = None
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    awaiting: dict[int, PreparedCall] = field(default_factory=dict[int, PreparedCall])
    outcomes: dict[int, CallOutcome] = field(default_factory=dict[int, CallOutcome])
    _recorded: set[int] = field(default_factory=set[int])
    _tasks: list[tuple[PreparedCall, asyncio.Task[None]]] = field(
        default_factory=list[tuple[PreparedCall, asyncio.Task[None]]]
    )

    def add(self, call: ToolCall) -> None:
        """Adds the turn's next call. It starts as soon as its order allows, unless an earlier call ends the run or the
        call needs approval."""
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
            self.awaiting[index] = prepared
            record = self._record(index, call)
            cause: JsonObject = {CAUSE_KEY: prepared.cause.dump()} if prepared.cause else {}
            waiting = replace(record, state="awaiting", metadata={**record.metadata, **cause})
            self.context.run_log.start_call(waiting, _started(waiting, f"{prepared.title} (needs approval)"))
            return
        record = self._record(index, call)
        ends = prepared.tool.name in ENDING_TOOLS
        before = [
            task for earlier, task in self._tasks if not task.done() and (ends or self._must_follow(earlier, prepared))
        ]
        if not before:
            self.context.run_log.start_call(record, _started(record, prepared.title))
        work = self._run(record, call, prepared, before)
        self._tasks.append((prepared, self.group.create_task(work, name=f"tool {call.name}")))

    async def wait_for_calls(self) -> tuple[CallOutcome, ...]:
        """Waits for all calls and returns their outcomes in call order."""
        if self._tasks:
            await asyncio.wait([task for _, task in self._tasks])
        return tuple(self.outcomes[index] for index in range(len(self.calls)) if index in self.outcomes)

    def take_approval(self) -> Approval:
        """Returns the approval to ask for the waiting calls. Also records the calls that could not run at all."""
        for index, outcome in self.outcomes.items():
            if index not in self._recorded:
                record = self._record(index, outcome.call)
                self.context.run_log.start_call(record, _started(record, outcome.call.name))
                record_outcome(self.context.run_log, record, outcome)
        return self._approval_of(self.awaiting)

    def _approval_of(self, awaiting: Mapping[int, PreparedCall]) -> Approval:
        calls = tuple(prepared.to_approve(index) for index, prepared in awaiting.items())
        return Approval(turn_id=self.turn_id, calls=calls)

    def _must_follow(self, earlier: PreparedCall, later: PreparedCall) -> bool:
        return must_wait_for(earlier, later, self.context.policy.strategy)

    def _must_wait(self, prepared: PreparedCall) -> bool:
        return prepared.needs_approval and prepared.to_approve().grant not in self.context.policy.granted

    def fail_unfinished_calls(self, why: str) -> tuple[CallOutcome, ...]:
        """Returns the outcomes in call order. Calls without an outcome get a failed one with the given reason."""
        return tuple(self.outcomes.get(index) or failed_outcome(call, why) for index, call in enumerate(self.calls))

    def _prepared(self, call: ToolCall) -> PreparedCall:
        most = self.context.policy.calls_max
        if 0 < most < len(self.calls):
            raise ToolError(TOO_MANY_CALLS.format(number=len(self.calls), most=most))
        if self.ended_by is not None:
            raise ToolError(f"Not run: {self.ended_by} came before it and ends the run.")
        if call.problem is not None:
            raise ToolError(call.problem)
        written = prepare_call(call.name, call.arguments, self.context.toolbox)
        # a server's own tool descriptions are no reason to ask about calls of its tools, which have approvals of their
        # own
        described = self.context.toolbox.sources(besides=written.tool.described_by)
        prepared = self._judge(written, join_sources([self.sources, described]))
        must_wait = any(
            call.name in ENDING_TOOLS or self._must_follow(earlier, prepared) for earlier in self.awaiting.values()
        )
        if must_wait and not self._must_wait(prepared):
            raise ToolError("Not run: a call before it waits for an approval. Call it again then.")
        if self._must_wait(prepared) and self._approval_of({**self.awaiting, len(self.calls): prepared}).is_too_long:
            raise ToolError(TOO_LONG)
        return prepared

    def _judge(self, written: PreparedCall, sources: Sources) -> PreparedCall:
        """Returns the call, with a cause if users must be asked because of what the model has read. Raises ToolError if
        the call must not run."""
        prepared = replace(written, sources=sources)
        if prepared.approval is not None and not self._must_wait(prepared):
            return prepared  # users have allowed exactly this target for good
        earlier = (call.reach for call in (*self.awaiting.values(), *(call for call, _ in self._tasks)))
        match judge_call(prepared.reach, sources, earlier):
            case Refuse(reason=reason):
                raise ToolError(reason)
            case AskUsers() as ask:
                return replace(prepared, cause=explain_consent(ask, sources, datetime.now(UTC)))
            case _:
                return prepared

    def _record(self, index: int, call: ToolCall) -> ToolCallRecord:
        self._recorded.add(index)
        metadata: JsonObject = self.context.dialect.parsing_details(call)
        if self.reasoning is not None and len(self._recorded) == 1:
            metadata = {**metadata, REASONING_KEY: self.reasoning}
        return ToolCallRecord(
            run_id=self.context.tool_context.run_id,
            turn_id=self.turn_id,
            index=index,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            raw=call.raw,
            assistant_message_id=self.assistant_message_id,
            metadata=metadata,
        )

    async def _run(
        self, record: ToolCallRecord, call: ToolCall, prepared: PreparedCall, before: Sequence[asyncio.Task[None]]
    ) -> None:
        if before:
            await asyncio.wait(before)
            self.context.run_log.start_call(record, _started(record, prepared.title))
        await self.context.run_log.commit()
        earlier = [self.outcomes[index] for index in self.outcomes if index < record.index]
        if call.name in ENDING_TOOLS and any(map(must_be_seen_by_model, earlier)):
            outcome = failed_outcome(call, NOT_THE_END)
        else:
            outcome = await execute_call(call, prepared, self.context.tool_context)
        self.outcomes[record.index] = outcome
        self.reply = self.reply or outcome.reply
        if outcome.outcome != "error":
            tools = self.context.tool_context
            await tools.todo.track_call(call, tools.sandbox, tools.emit)
        record_outcome(self.context.run_log, record, outcome)
        current = asyncio.current_task()
        if any(not task.done() for _, task in self._tasks if task is not current):
            await self.context.run_log.commit()


def _started(record: ToolCallRecord, title: str) -> ToolStarted:
    return ToolStarted(index=record.index, call_id=record.call_id, name=record.name, title=title)


ENDING_TOOLS = frozenset({"ask", "complete", "web_browser_takeover", "no_reply"})
NOT_THE_END = (
    "Not carried out: a call before it in your answer failed, ended with an exit code other than 0, or still runs, and "
    "what you wrote did not know that. Look at the results, then go on or end in your next answer."
)


def must_be_seen_by_model(outcome: CallOutcome) -> bool:
    """Whether the model must see the result before it can say that the work is done."""
    exit_code = exit_code_of(outcome.call.name, outcome.result)
    return outcome.outcome != "completed" or leaves_command_running(outcome) or exit_code not in (None, 0)


def leaves_command_running(outcome: CallOutcome) -> bool:
    session = session_left_by_call(outcome.call.name, outcome.call.arguments, outcome.result)
    return session is not None and session.is_running


async def execute_call(call: ToolCall, prepared: PreparedCall, context: ToolContext) -> CallOutcome:
    """Runs a prepared call and returns its outcome. Reports its duration and the last line that it has printed to users
    at intervals, and the checklist if the call changed it. Tool errors become failed outcomes; only LeaseLost,
    StorageUnavailable and cancellation are raised."""
    opened: list[Sandbox] = []
    began, lines = time.monotonic(), [""]
    context.opened_hosts.update(hosts_opened_by(prepared.reach))
    created: list[str] = []  # links for users

    async def open_sandbox() -> Sandbox:
        opened.append(sandbox := await context.sandbox())
        if prepared.sources is not None:
            sandbox.limit_network(limit_network(prepared.reach, prepared.sources, frozenset(context.opened_hosts)))
        return sandbox

    def report_progress() -> None:
        line = clean_line(lines[-1], PROGRESS_LINE_CHARACTERS)
        seconds = round(time.monotonic() - began)
        context.emit(ToolProgressed(call_id=call.call_id, seconds=seconds, line=line))

    def emit(event: AgentEvent) -> None:
        if isinstance(event, ToolProgressed):
            lines.append(event.line)
        else:
            context.emit(event)

    with (
        context.metrics.time_step("tool", tool=prepared.tool.name) as timing,
        call_every(PROGRESS_SECONDS, report_progress, after_seconds=PROGRESS_AFTER_SECONDS),
    ):
        links = context.links.recording_links_to(created.append)
        outcome = await _outcome(call, prepared, replace(context, sandbox=open_sandbox, links=links, emit=emit))
        fetched = sources_read_now(("internet", "")) if any(sandbox.has_fetched for sandbox in opened) else NO_SOURCES
        brought = sources_read_now(*prepared.reach.brings)  # whether the call has succeeded or not
        sources = join_sources([brought, fetched, offer_addresses(created), outcome.sources])
        hosts = opened[-1].take_refused_hosts() if opened else ()
        shown = ", ".join(clean_line(host, HOST_CHARACTERS_MAX) for host in hosts[:REFUSED_HOSTS_SHOWN_MAX])
        refused: JsonObject = {"network": NOT_REACHED.format(hosts=shown)} if hosts else {}
        seconds = time.monotonic() - began
        outcome = replace(outcome, result={**outcome.result, **refused}, sources=sources, seconds=seconds)
        timing.labels["outcome"] = outcome.outcome
    return outcome


def record_outcome(run_log: RunLog, record: ToolCallRecord, outcome: CallOutcome) -> None:
    """Records that the call has ended, with its result, the result's sources, the reply that it left, and the messages
    that came with it, such as images. The next `commit` stores them together, so that no crash can separate them."""
    for message in outcome.messages:
        run_log.emit(MessageAdded(message=message))
    metadata: JsonObject = {**record.metadata, SOURCES_KEY: dump_sources(outcome.sources)}
    if outcome.reply is not None:
        metadata = {**metadata, REPLY_KEY: _REPLY.dump_python(outcome.reply, mode="json")}
    run_log.finish_call(replace(record, state="finished", result=outcome.result, metadata=metadata))


def stored_reply(record: ToolCallRecord) -> Reply | None:
    """Returns the reply that an ended call left, or None."""
    reply = record.metadata.get(REPLY_KEY)
    return None if reply is None else _REPLY.validate_python(reply)


async def _outcome(call: ToolCall, prepared: PreparedCall, context: ToolContext) -> CallOutcome:
    tool = prepared.tool
    try:
        try:
            async with asyncio.timeout(tool.timeout_seconds):
                output = await tool.run(prepared.params, context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the call itself is cancelled
            raise RuntimeError("something in the tool was cancelled") from error
    except ToolError as error:
        return failed_outcome(call, str(error), outcome="failed")
    except RunError as error:
        log.warning("the tool %s failed: %s", tool.name, error.detail or error)
        return failed_outcome(call, str(error))
    except (LeaseLost, StorageUnavailable):
        raise
    except TimeoutError:
        return failed_outcome(
            call, f"{tool.name} did not end within {tool.timeout_seconds:g} s and was given up. Try smaller steps."
        )
    except Exception as error:
        log.exception("the tool %s broke", tool.name)
        return failed_outcome(call, f"{tool.name} broke ({type(error).__name__}). Try another way.")
    return build_outcome(call, await _shortened(output, context))


async def _shortened(output: str | ToolOutput, context: ToolContext) -> ToolOutput:
    """Returns the output of a tool, truncated to RESULT_TOKENS_MAX tokens. Longer output is saved in full to the
    workspace."""
    whole = output if isinstance(output, ToolOutput) else ToolOutput(output=output)
    value = whole.output
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    if _fits(text):
        return whole
    path = f"{RESULTS_FOLDER}/{new_id()[-12:]}.txt"
    where = ""
    with suppress(RunError, ToolError, TimeoutError):
        async with asyncio.timeout(SAVE_SECONDS):
            files = (await context.sandbox()).files
            saved = text[:SAVED_CHARACTERS_MAX].encode("utf-8", "replace")
            await files.write(path, in_one_piece(saved))
        where = f"; all of it is in {path}, for grep, sed -n and read_file"
    return replace(whole, output=head_and_tail(text, where))


def _fits(text: str) -> bool:
    is_short = len(text) * TOKENS_PER_CHARACTER_MAX <= RESULT_TOKENS_MAX
    may_fit = len(text) <= RESULT_CHARACTERS_MAX
    return is_short or (may_fit and count_text(text) <= RESULT_TOKENS_MAX)


def head_and_tail(text: str, where: str = "") -> str:
    """Returns the text if it has at most RESULT_TOKENS_MAX tokens. Otherwise returns its beginning and its end with a
    note in between. `where` is added to the note, and names the file with the whole text."""
    if _fits(text):
        return text
    tokens = RESULT_TOKENS_MAX - NOTE_TOKENS
    head = first_tokens(text[: RESULT_CHARACTERS_MAX * HEAD_PERCENT // 100], tokens * HEAD_PERCENT // 100)
    tail_percent = 100 - HEAD_PERCENT
    end = text[-RESULT_CHARACTERS_MAX * tail_percent // 100 :]
    tail = first_tokens(end, tokens * tail_percent // 100, from_end=True)
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[{left_out} characters are left out here{where}]\n{tail}"


def build_outcome(call: ToolCall, whole: ToolOutput) -> CallOutcome:
    """Returns the outcome of a tool that ran."""
    result: JsonObject = {
        "success": whole.is_success,
        "output": whole.output,
        "error": None if whole.is_success else whole.error,
    }
    return CallOutcome(
        call=call,
        outcome="completed" if whole.is_success else "failed",
        result=result,
        reply=whole.reply,
        messages=tuple(map(with_token_count, whole.messages)),
        sources=whole.sources,
    )


def failed_outcome(call: ToolCall, why: str, *, outcome: Outcome = "error") -> CallOutcome:
    """Returns the outcome of a call that failed or did not run."""
    result: JsonObject = {"success": False, "output": None, "error": head_and_tail(why)}
    return CallOutcome(call=call, outcome=outcome, result=result)


def tool_finished_event(index: int, outcome: CallOutcome, tool_message_id: str) -> ToolFinished:
    """Returns the event for an ended call. `tool_message_id` is the id of the message with its result."""
    call = outcome.call
    session = session_left_by_call(call.name, call.arguments, outcome.result)
    return ToolFinished(
        index=index,
        call_id=call.call_id,
        name=call.name,
        seconds=round(outcome.seconds, 1),
        exit_code=exit_code_of(call.name, outcome.result),
        session=session.name if session else "",
        is_running=session is not None and session.is_running,
        outcome=outcome.outcome,
        message=str(outcome.result.get("error") or ""),
        tool_message_id=tool_message_id,
        terminates=outcome.reply is not None,
    )


def result_message(
    outcome: CallOutcome, assistant_message_id: str, turn_id: str, *, dialect: Dialect, context: ToolContext
) -> Message:
    """Returns the message with the result of a call, as the model receives it."""
    metadata: JsonObject = {
        "assistant_message_id": assistant_message_id,
        "parsing_details": dialect.parsing_details(outcome.call),
        SOURCES_KEY: dump_sources(outcome.sources),
    }
    content = dialect.result_content(outcome.call, outcome.result)
    return turn_message("tool", content, turn_id, metadata, context=context)


def turn_message(
    kind: MessageType, content: JsonObject, turn_id: str, metadata: JsonObject, *, context: ToolContext
) -> Message:
    """Returns a message that a turn adds to the history of its thread."""
    message = Message(
        type=kind,
        content=content,
        is_llm_message=True,
        thread_id=context.thread_id,
        run_id=context.run_id,
        metadata={**metadata, "thread_run_id": turn_id},
    )
    return with_token_count(message)
