"""Conversions between table rows and the types of core, one function for each direction."""

from dataclasses import asdict
from typing import Any, Protocol

from pydantic import TypeAdapter

from core.domain.events import AGENT_EVENT, Cursor, MessageAdded, RunEvent
from core.domain.messages import Message
from core.domain.threads import (
    Address,
    Ask,
    InboxItem,
    IncomingFile,
    Person,
    Run,
    Thread,
    ThreadInput,
    ToolCallRecord,
)
from core.stores import Delivery, UsageEntry
from storage.sql.columns import dump_json

RowValues = dict[str, object]


class Row(Protocol):
    """Values by column name."""

    def __getitem__(self, name: str, /) -> Any: ...


_FILES = TypeAdapter(tuple[IncomingFile, ...])


def thread_from_row(row: Row) -> Thread:
    return Thread(
        thread_id=row["thread_id"],
        address=Address(
            platform=row["platform"],
            workspace_id=row["workspace_id"],
            channel_id=row["channel_id"],
            thread_key=row["thread_key"],
        ),
        state=row["state"],
        title=row["title"],
        agent_id=row["agent_id"],
        sandbox_id=row["sandbox_id"],
        created_at=row["created_at"],
        last_activity_at=row["last_activity_at"],
    )


def thread_to_row(thread: Thread) -> RowValues:
    return {
        "thread_id": thread.thread_id,
        **asdict(thread.address),
        "state": thread.state,
        "title": thread.title,
        "agent_id": thread.agent_id,
        "sandbox_id": thread.sandbox_id,
        "next_sequence": 1,
        "created_at": thread.created_at,
        "last_activity_at": thread.last_activity_at,
    }


def _person(person_id: str | None, name: str | None) -> Person | None:
    return None if person_id is None else Person(person_id=person_id, name=name or "")


def run_from_row(row: Row) -> Run:
    return Run(
        run_id=row["run_id"],
        thread_id=row["thread_id"],
        status=row["status"],
        attempt=row["attempt"],
        requester=_person(row["requester_id"], row["requester_name"]),
        request_ref=row["request_ref"],
        model=row["model"],
        agent_id=row["agent_id"],
        agent_version_id=row["agent_version_id"],
        stop_requested=row["stop_requested"],
        finish_reason=row["finish_reason"],
        error=row["error"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


def run_to_row(run: Run) -> RowValues:
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "status": run.status,
        "attempt": run.attempt,
        "requester_id": run.requester.person_id if run.requester else None,
        "requester_name": run.requester.name if run.requester else None,
        "request_ref": run.request_ref,
        "model": run.model,
        "agent_id": run.agent_id,
        "agent_version_id": run.agent_version_id,
        "stop_requested": run.stop_requested,
        "finish_reason": run.finish_reason,
        "error": run.error,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
    }


def input_from_row(row: Row) -> ThreadInput:
    return ThreadInput(
        input_id=row["input_id"],
        thread_id=row["thread_id"],
        kind=row["kind"],
        author=Person(person_id=row["author_id"], name=row["author_name"]),
        text=row["text"],
        files=_FILES.validate_python(row["files"]),
        message_ref=row["message_ref"],
        sent_at=row["sent_at"],
    )


def arrival_to_row(arrival: InboxItem) -> RowValues:
    """Returns the columns of an input that come from its arrival."""
    return {
        "dedupe_key": arrival.dedupe_key,
        "kind": arrival.kind,
        "author_id": arrival.author.person_id,
        "author_name": arrival.author.name,
        "text": arrival.text,
        "files": [asdict(file) for file in arrival.files],
        "message_ref": arrival.message_ref,
        "sent_at": arrival.sent_at,
    }


def message_from_row(row: Row) -> Message:
    return Message(
        message_id=row["message_id"],
        thread_id=row["thread_id"],
        run_id=row["run_id"],
        sequence=row["sequence"],
        type=row["type"],
        is_llm_message=row["is_llm_message"],
        content=row["content"],
        metadata=row["metadata"],
        token_count=row["token_count"],
        agent_id=row["agent_id"],
        agent_version_id=row["agent_version_id"],
        created_at=row["created_at"],
    )


def message_to_row(message: Message, sequence: int) -> RowValues:
    return {
        "message_id": message.message_id,
        "thread_id": message.thread_id,
        "run_id": message.run_id,
        "sequence": sequence,
        "type": message.type,
        "is_llm_message": message.is_llm_message,
        "content": message.content,
        "metadata": message.metadata,
        "token_count": message.token_count,
        "agent_id": message.agent_id,
        "agent_version_id": message.agent_version_id,
        "created_at": message.created_at,
    }


def event_from_row(row: Row, message: Message | None) -> RunEvent:
    """Pass the stored message for a row without a body, which stands for `MessageAdded`. Raises ValueError without
    it."""
    if row["body"] is not None:
        event = AGENT_EVENT.validate_json(row["body"])
    elif message is not None:
        event = MessageAdded(message=message)
    else:
        raise ValueError(f"event {row['attempt']}-{row['n']} of {row['run_id']} lost its message")
    return RunEvent(
        run_id=row["run_id"],
        thread_id=row["thread_id"],
        cursor=Cursor(row["attempt"], row["n"]),
        event=event,
        turn_id=row["turn_id"],
        message_id=row["message_id"],
        agent_id=row["agent_id"],
        agent_version_id=row["agent_version_id"],
        created_at=row["created_at"],
    )


def event_to_row(event: RunEvent) -> RowValues:
    if isinstance(event.event, MessageAdded):
        body, message_id = None, event.event.message.message_id
    else:
        body, message_id = dump_json(event.event), event.message_id
    return {
        "run_id": event.run_id,
        "attempt": event.cursor.attempt,
        "n": event.cursor.n,
        "thread_id": event.thread_id,
        "body": body,
        "turn_id": event.turn_id,
        "message_id": message_id,
        "agent_id": event.agent_id,
        "agent_version_id": event.agent_version_id,
        "created_at": event.created_at,
    }


def tool_call_from_row(row: Row) -> ToolCallRecord:
    return ToolCallRecord(
        run_id=row["run_id"],
        turn_id=row["turn_id"],
        index=row["index"],
        call_id=row["call_id"],
        name=row["name"],
        arguments=row["arguments"],
        raw=row["raw"],
        assistant_message_id=row["assistant_message_id"],
        state=row["state"],
        result=row["result"],
        metadata=row["metadata"],
    )


def tool_call_to_row(call: ToolCallRecord) -> RowValues:
    return {
        "run_id": call.run_id,
        "turn_id": call.turn_id,
        "index": call.index,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "raw": call.raw,
        "assistant_message_id": call.assistant_message_id,
        "state": call.state,
        "result": call.result,
        "metadata": call.metadata,
    }


def ask_from_row(row: Row) -> Ask:
    return Ask(
        ask_id=row["ask_id"],
        run_id=row["run_id"],
        text=row["text"],
        options=tuple(row["options"]),
        state=row["state"],
        answer=row["answer"],
        answered_by=_person(row["answered_by_id"], row["answered_by_name"]),
        kind=row["kind"],
        subject=row["subject"],
    )


def delivery_from_row(row: Row) -> Delivery:
    return Delivery(
        delivery_id=row["delivery_id"],
        run_id=row["run_id"],
        slot=row["slot"],
        ordinal=row["ordinal"],
        body=row["body"],
        state=row["state"],
        message_ref=row["message_ref"],
        error=row["error"],
    )


def usage_to_row(entry: UsageEntry) -> RowValues:
    return {
        "turn_id": entry.turn_id,
        "model": entry.model,
        "input_tokens": entry.usage.input_tokens,
        "cached_tokens": entry.usage.cached_tokens,
        "output_tokens": entry.usage.output_tokens,
        "cost_usd": entry.usage.cost_usd,
        "estimated_usd": entry.usage.estimated_usd,
    }
