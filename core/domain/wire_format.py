"""Converts run events to the JSON objects of the HTTP stream and of stored status messages, in Suna's format."""

import json
from collections.abc import Mapping
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
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message

_Stored = (
    ToolStarted
    | ToolFinished
    | TurnStarted
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
            return ({**message_object(_status(event, fact)), "message_id": event.message_id},)


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
    moment = message.created_at.isoformat()
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
    if isinstance(fact, Chunk | MessageAdded | RunFinished | RunFailed):
        return None
    return _status(event, fact)


def _chunk(event: RunEvent, chunk: Chunk) -> JsonObject:
    content: JsonObject = {"role": "assistant"}
    match chunk:
        case TextStreamed(text=text):
            content |= {"content": text}
        case ThinkingStreamed(text=text, seconds=seconds):
            content |= {"status_type": "thinking_chunk", "thinking_chunk": text, "seconds": seconds}
        case ToolCallStreamed():
            call: JsonObject = {
                "id": chunk.call_id,
                "index": chunk.index,
                "type": "function",
                "function": {"name": chunk.name, "arguments": chunk.arguments},
            }
            content |= {"status_type": "tool_call_chunk", "tool_call_chunk": call}
        case ToolProgressed(call_id=call_id, seconds=seconds, line=line):
            content |= {"status_type": "tool_progress", "tool_call_id": call_id, "seconds": seconds, "message": line}
        case _:
            assert_never(chunk)
    is_text = isinstance(chunk, TextStreamed)
    turn: JsonObject = {} if event.turn_id is None else {"thread_run_id": event.turn_id}
    moment = event.created_at.isoformat()
    return {
        "message_id": None,
        "sequence": chunk.sequence,
        "thread_id": event.thread_id,
        "type": "assistant" if is_text else "status",
        "is_llm_message": is_text,
        "content": _encode(content),
        "metadata": _encode({"stream_status": "chunk", **turn}),
        "created_at": moment,
        "updated_at": moment,
    }


def _status(event: RunEvent, fact: _Stored) -> Message:
    """Returns the message that stores the event, with a new id if the event has none."""
    metadata: JsonObject = {} if event.turn_id is None else {"thread_run_id": event.turn_id}
    content: JsonObject
    match fact:
        case ToolStarted() | ToolFinished():
            content = {
                "role": "assistant",
                "status_type": "tool_started",
                "function_name": fact.name,
                "xml_tag_name": fact.name.replace("_", "-"),
                "message": fact.title if isinstance(fact, ToolStarted) else fact.message,
                "tool_index": fact.index,
                "tool_call_id": fact.call_id,
            }
            if isinstance(fact, ToolFinished):
                content["status_type"] = f"tool_{fact.outcome}"
                if fact.outcome == "completed" and fact.tool_message_id is not None:
                    metadata["linked_tool_result_message_id"] = fact.tool_message_id
                if fact.terminates:
                    metadata["agent_should_terminate"] = "true"
        case TurnStarted(turn_id=turn_id) | TurnFinished(turn_id=turn_id):
            edge = "start" if isinstance(fact, TurnStarted) else "end"
            metadata = {"thread_run_id": turn_id}
            content = {"status_type": f"thread_run_{edge}", **metadata}
        case ResponseStarted():
            content = {"status_type": "assistant_response_start"}
        case FinishReached(reason=reason):
            content = {"status_type": "finish", "finish_reason": reason}
        case ErrorRaised(message=text):
            content = {"role": "system", "status_type": "error", "message": text}
        case ChecklistChanged(title=title, items=items):
            lines: list[JsonValue] = [{"text": item.text, "state": item.state} for item in items]
            content = {"status_type": "checklist", "title": title, "items": lines}
        case ActivityChanged(text=text):
            content = {"status_type": "activity", "message": text}
        case ApprovalAsked(text=text):
            content = {"status_type": "approval_asked", "message": text}
        case ReplyLeft():
            content = {"status_type": "reply_left"}
        case CommandEnded(session=session, exit_code=code):
            content = {"status_type": "command_ended", "session_name": session, "exit_code": code}
        case _:
            assert_never(fact)
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
