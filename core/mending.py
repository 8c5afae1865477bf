"""Making a history whole that a crash cut off in the middle of a turn: every call gets its result, none runs twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from core.calls import ENDING_TOOLS, CallOutcome, RunLog, executed, refused
from core.dialects.dialect import Dialect
from core.errors import ToolError
from core.events import MessageAdded, ToolFinished, TurnFinished, TurnStarted
from core.ids import new_id
from core.messages import JsonObject, Message, ToolCall
from core.threads import Reply, ToolCallRecord
from core.tools.tool import Toolbox, ToolContext, prepare

INTERRUPTED = (
    "The program was restarted while this ran. It may or may not have done its work: "
    "check before you repeat it."
)
NEVER_STARTED = (
    "Not run: the program was restarted before it could start. Call it again if it is still needed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    messages: tuple[Message, ...] = ()
    reply: Reply | None = None


async def mend(
    history: Sequence[Message],
    records: Sequence[ToolCallRecord],
    *,
    dialect: Dialect,
    toolbox: Toolbox,
    context: ToolContext,
    run_log: RunLog,
) -> Mended:
    """Emits what the last attempt could not, and answers it. Calls that are idempotent run again."""
    answered = {str(message.metadata.get("assistant_message_id")) for message in history}
    known = {message.message_id: message for message in history if message.type == "assistant"}
    added: list[Message] = []
    reply: Reply | None = None
    unanswered = _unanswered(history, records, answered)
    for number, (assistant_id, group) in enumerate(unanswered.items(), start=1):
        turn_id = (
            group[0].turn_id if group else str(known[assistant_id].metadata.get("thread_run_id"))
        )
        run_log.emit(TurnStarted(turn_id=turn_id, number=number))
        outcomes = [await _outcome(record, toolbox, context) for record in group]
        assistant = known.get(assistant_id)
        if assistant is None:
            calls = [outcome.call for outcome in outcomes]
            text = "" if dialect.name == "native" else _written(calls)
            assistant = _message(
                "assistant",
                dialect.assistant_content(text, calls),
                context,
                message_id=assistant_id,
            )
            added.append(assistant)
            run_log.emit(MessageAdded(message=assistant))
        outcomes += [
            refused(call, NEVER_STARTED)
            for call in _native_calls(assistant)
            if call.call_id not in {record.call_id for record in group}
        ]
        for index, outcome in enumerate(outcomes):
            content = dialect.result_content(outcome.call, outcome.result)
            message = _message("tool", content, context, assistant_message_id=assistant_id)
            run_log.emit(_finished(index, outcome, message))
            run_log.emit(MessageAdded(message=message))
            added.append(message)
            reply = reply or outcome.reply
        run_log.emit(TurnFinished(turn_id=turn_id))
    return Mended(messages=tuple(added), reply=reply)


def _unanswered(
    history: Sequence[Message], records: Sequence[ToolCallRecord], answered: set[str]
) -> dict[str, list[ToolCallRecord]]:
    """Assistant message id to the calls on record, for each whose results are missing."""
    missing: dict[str, list[ToolCallRecord]] = {}
    for assistant_id, group in groupby(records, key=lambda record: record.assistant_message_id):
        if assistant_id not in answered:
            missing[assistant_id] = list(group)
    for message in history:
        if (
            message.type == "assistant"
            and message.message_id not in answered
            and _native_calls(message)
        ):
            missing.setdefault(message.message_id, [])
    return missing


async def _outcome(record: ToolCallRecord, toolbox: Toolbox, context: ToolContext) -> CallOutcome:
    call = ToolCall(
        name=record.name, arguments=record.arguments, call_id=record.call_id, raw=record.raw
    )
    if record.result is not None and record.name not in ENDING_TOOLS:
        outcome = "completed" if record.result.get("success") else "failed"
        return CallOutcome(call=call, outcome=outcome, result=record.result)
    try:
        prepared = prepare(record.name, record.arguments, toolbox)
    except ToolError as error:
        return refused(call, str(error))
    if prepared.tool.is_idempotent:
        return await executed(call, prepared, context)
    return refused(call, INTERRUPTED)


def _written(calls: Sequence[ToolCall]) -> str:
    """Calls of a text dialect as the model wrote them."""
    raw = "\n".join(call.raw for call in calls)
    is_bare = raw.lstrip().startswith("<invoke")
    return f"<function_calls>\n{raw}\n</function_calls>" if is_bare else raw


def _native_calls(message: Message) -> list[ToolCall]:
    calls = message.content.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [
        ToolCall(name=str(function.get("name")), arguments={}, call_id=str(call.get("id")))
        for call in calls
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]


def _finished(index: int, outcome: CallOutcome, message: Message) -> ToolFinished:
    return ToolFinished(
        index=index,
        call_id=outcome.call.call_id,
        name=outcome.call.name,
        outcome=outcome.outcome,
        message=str(outcome.result.get("error") or ""),
        tool_message_id=message.message_id,
        terminates=outcome.reply is not None,
    )


def _message(
    kind: Literal["assistant", "tool"],
    content: JsonObject,
    context: ToolContext,
    *,
    message_id: str | None = None,
    assistant_message_id: str | None = None,
) -> Message:
    metadata: JsonObject = {"is_mended": True}
    if assistant_message_id is not None:
        metadata["assistant_message_id"] = assistant_message_id
    return Message(
        type=kind,
        content=content,
        is_llm_message=True,
        thread_id=context.thread_id,
        run_id=context.run_id,
        metadata=metadata,
        message_id=message_id or new_id(),
    )
