"""Repairs a history that a crash or an error interrupted in the middle of a turn: adds a result to every tool call that
has none."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from core.context.message_text import sources_of_message
from core.dialects.dialect import CallComplete, Dialect, parse_message
from core.dialects.native import NativeDialect
from core.dialects.selection import select_dialect
from core.domain.approval import EXPIRED, Approval, Cause, is_one_by_one, needs_question, refusal_reason
from core.domain.errors import ApprovalExpired, ToolError
from core.domain.events import MessageAdded, RunEvent, ToolStarted, TurnFinished, TurnStarted
from core.domain.messages import REASONING_KEY, Message, ToolCall
from core.domain.network import hosts_opened_by
from core.domain.sources import NO_SOURCES, SOURCES_KEY, Sources, join_sources, parse_sources
from core.domain.threads import Ask, ToolCallRecord
from core.loop.calls import (
    CAUSE_KEY,
    ENDING_TOOLS,
    NOT_THE_END,
    CallOutcome,
    execute_call,
    failed_outcome,
    must_be_seen_by_model,
    record_outcome,
    result_message,
    stored_reply,
    tool_finished_event,
    turn_message,
)
from core.loop.run_context import RunLog
from core.tools.tool import PreparedCall, ToolContext, ToolSet, prepare_call

INTERRUPTED = (
    "The run was interrupted while this ran. It may or may not have done its work: check before you repeat it."
)
NEVER_STARTED = "Not run: the run was interrupted before it could start. Call it again if it is still needed."


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedHistory:
    """The messages that the repair added, and the approval that the run now waits for, if any."""

    messages: tuple[Message, ...] = ()
    approval: Approval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairContext:
    """The parts of a run that a history repair uses. If `runs_calls` is False, no tool call is run again. `not_run` is
    the error of calls that were never started."""

    toolbox: ToolSet
    context: ToolContext
    run_log: RunLog
    runs_calls: bool = True
    not_run: str = NEVER_STARTED
    answer: Ask | None = None
    """The newest approval request of the run, with the answer if users gave one."""
    granted: frozenset[str] = frozenset()
    """The grants of the calls that no longer need approval in this thread."""
    sources: Sources = NO_SOURCES
    """The sources of the history. `repair_history` sets them."""


async def repair_history(
    history: Sequence[Message], records: Sequence[ToolCallRecord], repair: RepairContext
) -> RepairedHistory:
    """Emits and returns the messages that are missing because the last attempt was interrupted.

    Runs idempotent calls and approved calls; other interrupted calls get an error as their result. Raises
    ApprovalExpired, after the repair, if the approval was not answered in time.
    """
    for record in records:
        if record.result is not None and record.result.get("success"):
            with suppress(ToolError):  # the tool no longer exists
                repair.context.opened_hosts.update(hosts_opened_by(_prepare(record, repair).reach))
    known = {message.message_id: message for message in history if message.type == "assistant"}
    added: list[Message] = []
    sources = join_sources([repair.toolbox.sources(), *map(sources_of_message, history)])
    repair = replace(repair, sources=sources)
    for assistant_id, group in _unanswered(history, records).items():
        assistant, dialect = known.get(assistant_id), _dialect_of(group)
        turn_id = group[0].turn_id if group else str(known[assistant_id].metadata["thread_run_id"])
        answers = [one for one in (*history, *added) if one.type == "assistant"]
        ids = [one.message_id for one in answers if one.run_id == repair.context.run_id]
        # a lost message counts as the newest turn
        number = (ids.index(assistant_id) if assistant_id in ids else len(ids)) + 1
        repair.run_log.emit(TurnStarted(turn_id=turn_id, number=number))
        unasked = [record for record in group if _is_unasked(record, repair)]
        outcomes = list[CallOutcome]()
        for record in group:
            if record not in unasked:
                outcome = await _outcome(record, outcomes, repair)
                record_outcome(repair.run_log, record, outcome)
                if outcome.outcome != "error" and record.result is None:
                    await repair.context.todo.track_call(outcome.call, repair.context.sandbox, repair.context.emit)
                added.extend(outcome.messages)
                outcomes.append(outcome)
        if assistant is None:
            # rebuilds the lost message from its calls; its text cannot be restored
            calls = [_call_of(record) for record in group]
            text = "" if dialect.name == "native" else "\n".join(call.raw for call in calls)
            if text.lstrip().startswith("<invoke"):
                text = f"<function_calls>\n{text}\n</function_calls>"
            content = dialect.assistant_content(text, calls)
            if kept := next((one.metadata[REASONING_KEY] for one in group if REASONING_KEY in one.metadata), None):
                content = {**content, REASONING_KEY: kept}
            rebuilt = turn_message("assistant", content, turn_id, {}, context=repair.context)
            assistant = replace(rebuilt, message_id=assistant_id)
            added.append(assistant)
            repair.run_log.emit(MessageAdded(message=assistant))
        if unasked:
            # the next attempt adds the recorded results to the history, together with the results of these calls
            asked = unasked[:1] if is_one_by_one(repair.answer, turn_id) else unasked
            to_approve = tuple(_prepare(record, repair).to_approve(record.index) for record in asked)
            repair.run_log.emit(TurnFinished(turn_id=turn_id, is_mended=True))
            return RepairedHistory(messages=tuple(added), approval=Approval(turn_id=turn_id, calls=to_approve))
        never = _unrecorded_calls(assistant, group, dialect, repair.toolbox)
        outcomes += [failed_outcome(call, repair.not_run) for call in never]
        for index, outcome in enumerate(outcomes):
            message = result_message(outcome, assistant_id, turn_id, dialect=dialect, context=repair.context)
            repair.run_log.emit(tool_finished_event(index, outcome, message.message_id))
            repair.run_log.emit(MessageAdded(message=message))
            added.append(message)
        repair.run_log.emit(TurnFinished(turn_id=turn_id, is_mended=True))
    if repair.answer is not None and repair.answer.state == "expired":
        raise ApprovalExpired(EXPIRED)
    return RepairedHistory(messages=tuple(added))


def _dialect_of(records: Sequence[ToolCallRecord]) -> Dialect:
    """Returns the dialect in which a message's calls were written. A message without recorded calls is only repaired if
    its calls are native."""
    return select_dialect("", str(records[0].metadata.get("format", "native"))) if records else NativeDialect()


def _unrecorded_calls(
    assistant: Message, records: Sequence[ToolCallRecord], dialect: Dialect, toolbox: ToolSet
) -> list[ToolCall]:
    """Returns the calls of the message that had not started and are therefore not in the journal."""
    if dialect.name == "native":
        ids = {record.call_id for record in records}
        return [call for call in _native_calls(assistant) if call.call_id not in ids]
    parsed = parse_message(assistant, dialect, toolbox.specs)
    written = [part.call for part in parsed if isinstance(part, CallComplete)]
    recorded = {record.index for record in records}
    return [call for index, call in enumerate(written) if index not in recorded]


def end_open_turns(events: Sequence[RunEvent], run_log: RunLog) -> None:
    """Emits the missing end event of each turn that earlier attempts started, so that start and end events pair up.

    `repair_history` starts a turn again if it adds results for the turn's calls.
    """
    is_open: list[str] = []
    for one in events:
        if isinstance(one.event, TurnStarted):
            is_open.append(one.event.turn_id)
        elif isinstance(one.event, TurnFinished) and one.event.turn_id in is_open:
            is_open.remove(one.event.turn_id)
    for turn_id in is_open:
        run_log.emit(TurnFinished(turn_id=turn_id, is_mended=True))


def _is_unasked(record: ToolCallRecord, repair: RepairContext) -> bool:
    """Returns whether the call still needs an approval request, because the program stopped before asking users.

    Returns False for a call that is no longer valid, because its result will be an error."""
    if (
        record.state != "awaiting"
        or not needs_question(repair.answer, record.turn_id, record.index)
        or not repair.runs_calls
    ):
        return False
    try:
        prepared = _prepare(record, repair)
    except ToolError:
        return False
    return prepared.to_approve().grant not in repair.granted


def _prepare(record: ToolCallRecord, repair: RepairContext) -> PreparedCall:
    """Prepares a recorded call. Raises ToolError. If users must be asked because of what the model had read, the cause
    was recorded when the model wrote the call."""
    prepared = prepare_call(record.name, record.arguments, repair.toolbox)
    return replace(prepared, cause=Cause.parse(record.metadata.get(CAUSE_KEY)), sources=repair.sources)


def _unanswered(history: Sequence[Message], records: Sequence[ToolCallRecord]) -> dict[str, list[ToolCallRecord]]:
    """Returns the recorded calls, by assistant message id, of each assistant message without results."""
    answered = {str(message.metadata.get("assistant_message_id")) for message in history}
    missing: dict[str, list[ToolCallRecord]] = {}
    for assistant_id, group in groupby(records, key=lambda record: record.assistant_message_id):
        if assistant_id not in answered:
            missing[assistant_id] = list(group)
    for message in history:
        if message.type == "assistant" and message.message_id not in answered and _native_calls(message):
            missing.setdefault(message.message_id, [])
    return missing


async def _outcome(record: ToolCallRecord, earlier: Sequence[CallOutcome], repair: RepairContext) -> CallOutcome:
    call = _call_of(record)
    if record.result is not None:
        return CallOutcome(
            call=call,
            outcome="completed" if record.result.get("success") else "failed",
            result=record.result,
            reply=stored_reply(record),
            sources=parse_sources(record.metadata.get(SOURCES_KEY)),
        )
    if record.name in ENDING_TOOLS and any(map(must_be_seen_by_model, earlier)):
        return failed_outcome(call, NOT_THE_END)
    if not repair.runs_calls:
        return failed_outcome(call, repair.not_run if record.state == "awaiting" else INTERRUPTED)
    try:
        prepared = _prepare(record, repair)
    except ToolError as error:
        # the tool existed when the call started, but its MCP server may not be ready now
        return failed_outcome(call, str(error) if record.state == "awaiting" else f"{INTERRUPTED} {error}")
    if record.state != "awaiting":
        if prepared.tool.is_idempotent:
            return await execute_call(call, prepared, repair.context)
        return failed_outcome(call, INTERRUPTED)
    asked = prepared.to_approve(record.index)
    why_not = refusal_reason(repair.answer, record.turn_id, asked)
    if why_not is not None and asked.grant not in repair.granted:
        return failed_outcome(call, why_not)
    # recorded before it runs, so that it does not run again after a crash
    repair.run_log.finish_call(replace(record, state="started"))
    repair.run_log.emit(ToolStarted(index=record.index, call_id=record.call_id, name=record.name, title=prepared.title))
    await repair.run_log.commit()
    by = repair.answer.answered_by if repair.answer else None
    return await execute_call(call, prepared, replace(repair.context, approved_by=by))


def _call_of(record: ToolCallRecord) -> ToolCall:
    return ToolCall(name=record.name, arguments=record.arguments, call_id=record.call_id, raw=record.raw)


def _native_calls(message: Message) -> list[ToolCall]:
    calls = message.content.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [
        ToolCall(name=str(function.get("name")), arguments={}, call_id=str(call.get("id")))
        for call in calls
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]
