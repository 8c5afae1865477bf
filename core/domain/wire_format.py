"""Run events as the HTTP stream and the stored status messages spell them: Suna's objects, field by field."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import assert_never

from pydantic import JsonValue

from core.domain.events import (
    ActivityChanged,
    ApprovalAsked,
    ChecklistChanged,
    Chunk,
    ErrorRaised,
    FinishReached,
    MessageAdded,
    ResponseStarted,
    RunEvent,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from core.domain.ids import new_id
from core.domain.messages import JsonObject, Message

_ToolFact = ToolStarted | ToolFinished
_PlainFact = (
    TurnStarted
    | TurnFinished
    | ResponseStarted
    | FinishReached
    | ErrorRaised
    | ChecklistChanged
    | ActivityChanged
    | ApprovalAsked
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def compact_json(value: Mapping[str, JsonValue]) -> str:
    """Compact JSON on one line, as it goes into `content`, `metadata` and the stream."""
    return _encode(value)


def suna_objects(event: RunEvent) -> tuple[JsonObject, ...]:
    """What a subscriber is sent for the event, in order; it ends with a bare run status for a terminal event."""
    match event.event:
        case TextStreamed() | ThinkingStreamed() | ToolCallStreamed():
            return (_chunk(event, event.event),)
        case MessageAdded(message=message):
            return (message_object(message, turn_id=event.turn_id),)
        case RunFinished(status=status, message=text):
            return ({"type": "status", "status": status, "message": text},)
        case RunFailed(public_message=text):
            return ({"type": "status", "status": "failed", "message": text},)
        case fact:
            content, metadata = _status(event, fact)
            return (_stored(event, content, metadata),)


def message_object(message: Message, *, turn_id: str | None = None) -> JsonObject:
    """A whole message of a thread. An assistant's is marked complete and always says whether it called tools."""
    content, metadata = message.content, message.metadata
    if message.type == "assistant":
        content = content if "tool_calls" in content else {**content, "tool_calls": None}
        metadata = {**metadata, "stream_status": "complete"}
    if turn_id is not None and "thread_run_id" not in metadata:
        metadata = {**metadata, "thread_run_id": turn_id}
    moment = _moment(message.created_at)
    return {
        "message_id": message.message_id,
        "thread_id": message.thread_id,
        "type": message.type,
        "is_llm_message": message.is_llm_message,
        "content": _encode(content),
        "metadata": _encode(metadata),
        "agent_id": message.agent_id,
        "agent_version_id": message.agent_version_id,
        "created_at": moment,
        "updated_at": moment,
    }


def status_message(event: RunEvent) -> Message | None:
    """The `status` row that stands for the event in the thread; None for chunks, whole messages and the end.

    It carries the event's `message_id`, or a new one where the event has none.
    """
    fact = event.event
    if isinstance(fact, TextStreamed | ThinkingStreamed | ToolCallStreamed):
        return None
    if isinstance(fact, MessageAdded | RunFinished | RunFailed):
        return None
    content, metadata = _status(event, fact)
    return Message(
        type="status",
        content=content,
        is_llm_message=False,
        thread_id=event.thread_id,
        run_id=event.run_id,
        metadata=metadata,
        message_id=event.message_id or new_id(),
        agent_id=event.agent_id,
        agent_version_id=event.agent_version_id,
        created_at=event.created_at,
    )


def _moment(moment: datetime) -> str:
    return moment.isoformat()


def _metadata(event: RunEvent) -> JsonObject:
    return {} if event.turn_id is None else {"thread_run_id": event.turn_id}


def _stored(event: RunEvent, content: JsonObject, metadata: JsonObject) -> JsonObject:
    moment = _moment(event.created_at)
    return {
        "message_id": event.message_id,
        "thread_id": event.thread_id,
        "type": "status",
        "is_llm_message": False,
        "content": _encode(content),
        "metadata": _encode(metadata),
        "agent_id": event.agent_id,
        "agent_version_id": event.agent_version_id,
        "created_at": moment,
        "updated_at": moment,
    }


def _chunk(event: RunEvent, chunk: Chunk) -> JsonObject:
    is_text = isinstance(chunk, TextStreamed)
    moment = _moment(event.created_at)
    return {
        "message_id": None,
        "sequence": chunk.sequence,
        "thread_id": event.thread_id,
        "type": "assistant" if is_text else "status",
        "is_llm_message": is_text,
        "content": _encode(_chunk_content(chunk)),
        "metadata": _encode({"stream_status": "chunk", **_metadata(event)}),
        "created_at": moment,
        "updated_at": moment,
    }


def _chunk_content(chunk: Chunk) -> JsonObject:
    match chunk:
        case TextStreamed(text=text):
            return {"role": "assistant", "content": text}
        case ThinkingStreamed(text=text):
            return {"role": "assistant", "status_type": "thinking_chunk", "thinking_chunk": text}
        case ToolCallStreamed():
            call: JsonObject = {
                "id": chunk.call_id,
                "index": chunk.index,
                "type": "function",
                "function": {"name": chunk.name, "arguments": chunk.arguments},
            }
            return {"role": "assistant", "status_type": "tool_call_chunk", "tool_call_chunk": call}
        case _:
            assert_never(chunk)


def _status(event: RunEvent, fact: _ToolFact | _PlainFact) -> tuple[JsonObject, JsonObject]:
    """Content and metadata of an event that is a status message."""
    metadata = _metadata(event)
    match fact:
        case ToolStarted():
            return _tool("tool_started", fact, fact.title), metadata
        case ToolFinished():
            if fact.outcome == "completed" and fact.tool_message_id is not None:
                metadata["linked_tool_result_message_id"] = fact.tool_message_id
            if fact.terminates:
                metadata["agent_should_terminate"] = "true"
            return _tool(f"tool_{fact.outcome}", fact, fact.message), metadata
        case TurnStarted(turn_id=turn_id) | TurnFinished(turn_id=turn_id):
            return _plain(fact), {"thread_run_id": turn_id}
        case _:
            return _plain(fact), metadata


def _plain(fact: _PlainFact) -> JsonObject:  # noqa: C901 - one case per event
    match fact:
        case TurnStarted(turn_id=turn_id):
            return {"status_type": "thread_run_start", "thread_run_id": turn_id}
        case TurnFinished(turn_id=turn_id):
            return {"status_type": "thread_run_end", "thread_run_id": turn_id}
        case ResponseStarted():
            return {"status_type": "assistant_response_start"}
        case FinishReached(reason=reason):
            return {"status_type": "finish", "finish_reason": reason}
        case ErrorRaised(message=text):
            return {"role": "system", "status_type": "error", "message": text}
        case ChecklistChanged(title=title, items=items):
            lines: list[JsonValue] = [{"text": item.text, "state": item.state} for item in items]
            return {"status_type": "checklist", "title": title, "items": lines}
        case ActivityChanged(text=text):
            return {"status_type": "activity", "message": text}
        case ApprovalAsked(text=text):
            return {"status_type": "approval_asked", "message": text}
        case _:
            assert_never(fact)


def _tool(status_type: str, event: _ToolFact, message: str) -> JsonObject:
    return {
        "role": "assistant",
        "status_type": status_type,
        "function_name": event.name,
        "xml_tag_name": event.name.replace("_", "-"),
        "message": message,
        "tool_index": event.index,
        "tool_call_id": event.call_id,
    }
