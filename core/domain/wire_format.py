"""Converts run events to the JSON objects of the HTTP stream and of stored status messages, in Suna's format."""

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
    CommandEnded,
    ErrorRaised,
    FinishReached,
    MessageAdded,
    ReplyLeft,
    ResponseStarted,
    RunEvent,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from core.domain.ids import new_id
from core.domain.messages import REASONING_KEY, JsonObject, Message

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
    | ReplyLeft
    | CommandEnded
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def compact_json(value: Mapping[str, JsonValue]) -> str:
    """Returns compact JSON on one line, as used in `content`, `metadata` and the stream."""
    return _encode(value)


def suna_objects(event: RunEvent) -> tuple[JsonObject, ...]:
    """Returns the objects that a subscriber receives for the event, in order. For a terminal event this is a bare
    run status."""
    match event.event:
        case TextStreamed() | ThinkingStreamed() | ToolCallStreamed() | ToolProgressed():
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


IMAGE_FIELDS = {"browser_state": "screenshot", "image_context": "base64"}
"""Which field of a message holds an image as base64. Subscribers get `image_url` in its place."""


def message_object(message: Message, *, turn_id: str | None = None) -> JsonObject:
    """Returns the object for a whole message. An assistant message is marked complete and always has `tool_calls`,
    even if null, and never the model's reasoning."""
    content, metadata = message.content, message.metadata
    if (image := IMAGE_FIELDS.get(message.type)) in content:
        content = {key: value for key, value in content.items() if key != image}
        content["image_url"] = f"/api/thread/{message.thread_id}/messages/{message.message_id}/image"
    if message.type == "assistant":
        shown = {key: value for key, value in content.items() if key != REASONING_KEY}
        content = {**shown, "tool_calls": content.get("tool_calls")}
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
    """Returns the `status` message that stores the event in the thread, or None for chunks, whole messages and terminal
    events.

    The message has the event's `message_id`, or a new id if the event has none.
    """
    fact = event.event
    if isinstance(fact, Chunk):
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
        case ThinkingStreamed(text=text, seconds=seconds):
            thinking: JsonObject = {"thinking_chunk": text, "seconds": seconds}
            return {"role": "assistant", "status_type": "thinking_chunk", **thinking}
        case ToolCallStreamed():
            call: JsonObject = {
                "id": chunk.call_id,
                "index": chunk.index,
                "type": "function",
                "function": {"name": chunk.name, "arguments": chunk.arguments},
            }
            return {"role": "assistant", "status_type": "tool_call_chunk", "tool_call_chunk": call}
        case ToolProgressed(call_id=call_id, seconds=seconds, line=line):
            progress: JsonObject = {"tool_call_id": call_id, "seconds": seconds, "message": line}
            return {"role": "assistant", "status_type": "tool_progress", **progress}
        case _:
            assert_never(chunk)


def _status(event: RunEvent, fact: _ToolFact | _PlainFact) -> tuple[JsonObject, JsonObject]:
    """Returns the content and the metadata of an event that is stored as a status message."""
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


def _plain(fact: _PlainFact) -> JsonObject:
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
        case ReplyLeft():
            return {"status_type": "reply_left"}
        case CommandEnded(session=session, exit_code=code):
            return {"status_type": "command_ended", "session_name": session, "exit_code": code}
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
