"""chat.startStream, appendStream and stopStream: messages that are written piece by piece."""

import time
from dataclasses import replace

from simulator.slack.block_kit.block_types import MARKDOWN_CHARS_MAX
from simulator.slack.block_kit.message_rules import check_message_blocks
from simulator.slack.events import message_events
from simulator.slack.events.payloads import Payload, Refused, as_payload, as_payloads
from simulator.slack.sessions import AgentSession
from simulator.slack.shapes import message_form
from simulator.slack.web_api.call import Call, Method
from simulator.slack.web_api.messages import mark_edited, metadata_of, postable_channel, thread_of
from simulator.slack.world import Channel, Message, Stream

_MODES = ("timeline", "plan", "dense")
_TASK_FIELDS = ("title", "status", "details", "output", "sources")
_STATUSES = ("pending", "in_progress", "complete", "error")


def start_stream(call: Call) -> Payload:
    channel, workspace = postable_channel(call), call.workspace
    mode = call.text("task_display_mode", "timeline")
    if mode not in _MODES:
        raise Refused("invalid_task_display_mode")
    if channel.kind != "im":
        for name in ("recipient_user_id", "recipient_team_id"):
            if not call.text(name):
                raise Refused(f"missing_{name}")
        if call.text("recipient_user_id") not in call.workspace.members:
            raise Refused("user_not_found")
    thread_ts = thread_of(call, channel)
    message = Message(
        ts=workspace.new_ts(),
        channel_id=channel.channel_id,
        user_id=workspace.bot.user_id,
        is_bot=True,
        text="",
        thread_ts=thread_ts,
        stream=Stream(mode=mode, touched_at=time.monotonic()),
    )
    _add(call, message)
    workspace.add_message(message)
    session = AgentSession(status="processing")
    workspace.sessions.setdefault((channel.channel_id, thread_ts or ""), session)
    message_events.tell_posted(workspace, message)
    return {"channel": channel.channel_id, "ts": message.ts}


def _streaming(call: Call) -> tuple[Channel, Message]:
    channel = call.joined_channel()
    message = call.message(channel, "ts")
    if not message.is_bot:
        raise Refused("message_not_owned_by_app")
    stream, now = message.stream, time.monotonic()
    idle = call.workspace.settings.stream_idle_seconds
    if stream is not None and stream.is_open and now - stream.touched_at > idle:
        stream.is_open = False
    if stream is None or not stream.is_open:
        raise Refused("message_not_in_streaming_state")
    stream.touched_at = now
    return channel, message


def append_stream(call: Call) -> Payload:
    channel, message = _streaming(call)
    _add(call, message)
    call.workspace.changed(message)
    return {"channel": channel.channel_id, "ts": message.ts}


def stop_stream(call: Call) -> Payload:
    channel, message = _streaming(call)
    metadata = metadata_of(call)
    final = check_message_blocks(call.arguments.get("blocks"))
    previous = message_form(call.workspace, message)
    _add(call, message)
    message.blocks = [*message.blocks, *final]
    message.metadata = metadata or message.metadata
    if message.stream is not None:
        message.stream.is_open = False
    session = call.workspace.sessions.get((channel.channel_id, message.thread_ts or ""))
    if session is not None:
        session.status = call.text("session_status", "active")
    mark_edited(call, message, previous)
    form = message_form(call.workspace, message, has_metadata=True)
    return {"channel": channel.channel_id, "ts": message.ts, "message": form}


def _add(call: Call, message: Message) -> None:
    stream, markdown = message.stream, call.text("markdown_text")
    given = call.arguments.get("chunks")
    chunks = as_payloads(given)
    if stream is None or (given is not None and not isinstance(given, list)):
        raise Refused("invalid_chunks")
    # Nothing of a refused call must stay behind in the message.
    tasks = {key: dict(task) for key, task in stream.tasks.items()}
    stream = replace(stream, tasks=tasks, extra=list(stream.extra))
    if markdown and chunks:
        raise Refused("markdown_text_conflict")
    if markdown:
        chunks = [{"type": "markdown_text", "text": markdown}]
    for chunk in chunks:
        _take(stream, chunk)
    if len(stream.text) > MARKDOWN_CHARS_MAX:
        raise Refused("msg_too_long")
    message.blocks = check_message_blocks(_blocks(stream))
    message.text, message.stream = stream.text, stream


def _take(stream: Stream, chunk: Payload) -> None:
    match chunk.get("type"), chunk:
        case "markdown_text", {"text": str(text)}:
            if len(text) > MARKDOWN_CHARS_MAX:
                raise Refused("msg_too_long")
            stream.text += text
        case "plan_update", {"title": str(title)}:
            stream.title = title
        case "task_update", {"id": str(task_id), "title": str()}:
            if chunk.get("status", "pending") not in _STATUSES:
                raise Refused("invalid_chunks")
            task = stream.tasks.setdefault(task_id, {"type": "task_card", "task_id": task_id})
            task |= {key: chunk[key] for key in _TASK_FIELDS if chunk.get(key) is not None}
        case "blocks", {"blocks": list()}:
            stream.extra.extend(check_message_blocks(chunk["blocks"]))
        case _:
            raise Refused("invalid_chunks")


def _blocks(stream: Stream) -> list[Payload]:
    tasks = [_task(task) for task in stream.tasks.values()]
    blocks: list[Payload] = []
    if tasks and (stream.title or stream.mode == "plan"):
        blocks.append({"type": "plan", "title": stream.title or "Plan", "tasks": tasks})
    else:
        blocks.extend(tasks)
    if stream.text.strip():
        blocks.append({"type": "markdown", "text": stream.text})
    return [*blocks, *stream.extra]


def _task(task: Payload) -> Payload:
    form = dict(task)
    for key in ("details", "output"):
        if form.get(key) and as_payload(form[key]) is None:
            part = {"type": "text", "text": str(form[key])}
            section = {"type": "rich_text_section", "elements": [part]}
            form[key] = {"type": "rich_text", "elements": [section]}
    return form


METHODS = {
    "chat.appendStream": Method(run=append_stream, tier="append", scopes=("chat:write",), required=("channel", "ts")),
    "chat.startStream": Method(run=start_stream, tier="t2", scopes=("chat:write",), required=("channel", "thread_ts")),
    "chat.stopStream": Method(run=stop_stream, tier="t2", scopes=("chat:write",), required=("channel", "ts")),
}
