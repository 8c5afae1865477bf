"""chat.postMessage, update, delete, postEphemeral and getPermalink."""

import json
import time

from simulator.slack.block_kit.message_rules import check_message_blocks
from simulator.slack.events import message_events
from simulator.slack.events.payloads import Payload, Refused, as_payload, as_payloads
from simulator.slack.shapes import message_form
from simulator.slack.web_api.call import Call, Method, invalid_argument
from simulator.slack.world import Channel, Message

TEXT_KEPT = 40_000
UPDATE_TEXT_MAX = 4_000
MARKDOWN_TEXT_MAX = 12_000
_METADATA_TYPE_MAX = 255
_METADATA_CHARS_MAX = 8_000
_OVERRIDES = ("username", "icon_emoji", "icon_url")


def post_message(call: Call) -> Payload:
    channel = postable_channel(call)
    message = _new_message(call, channel)
    if call.flag("reply_broadcast") and message.is_reply:
        message.subtype = "thread_broadcast"
        channel.top[message.ts] = message
    call.workspace.add_message(message)
    message_events.tell_posted(call.workspace, message)
    form = message_form(call.workspace, message, has_metadata=True)
    return {"channel": channel.channel_id, "ts": message.ts, "message": form}


def postable_channel(call: Call) -> Channel:
    """The channel that `channel` names by id, by #name, or by the person to write to."""
    channel, workspace = _addressed(call), call.workspace
    if workspace.bot.user_id not in channel.members and (
        channel.kind != "channel" or "chat:write.public" not in workspace.settings.scopes
    ):
        raise Refused("not_in_channel")
    if channel.is_archived:
        raise Refused("is_archived")
    if channel.is_read_only:
        raise Refused("restricted_action_read_only_channel")
    return channel


def _addressed(call: Call) -> Channel:
    workspace, wanted = call.workspace, call.text("channel")
    if wanted in workspace.members:
        if workspace.members[wanted].is_bot:
            raise Refused("cannot_dm_bot")
        return workspace.direct_with(wanted, workspace.bot.user_id)
    named = workspace.channel_names.get(wanted.removeprefix("#"))
    if named is not None:
        call.arguments["channel"] = named.channel_id
    return call.channel()


def thread_of(call: Call, channel: Channel) -> str | None:
    """The thread to reply in: a root message of this channel."""
    thread_ts = call.text("thread_ts")
    if not thread_ts:
        return None
    root = channel.messages.get(thread_ts)
    if root is None:
        raise Refused("thread_not_found")
    if root.is_reply or root.visible_to is not None:
        raise Refused("cannot_reply_to_message")
    return thread_ts


def _new_message(call: Call, channel: Channel) -> Message:
    text, blocks, attachments = content_of(call)
    if not text and not blocks and not attachments:
        raise Refused("no_text")
    overrides = {key: call.text(key) for key in _OVERRIDES if call.arguments.get(key)}
    if overrides:
        call.needs("chat:write.customize")
    workspace = call.workspace
    return Message(
        ts=workspace.new_ts(),
        channel_id=channel.channel_id,
        user_id=workspace.bot.user_id,
        is_bot=True,
        text=text,
        blocks=blocks,
        attachments=attachments,
        thread_ts=thread_of(call, channel),
        metadata=metadata_of(call),
        overrides=overrides,
    )


def content_of(call: Call) -> tuple[str, list[Payload], list[Payload]]:
    """Text, blocks and attachments, checked; `markdown_text` becomes a markdown block."""
    text = call.text("text")[:TEXT_KEPT]
    if not text.strip():
        text = ""
    blocks = check_message_blocks(call.arguments.get("blocks"))
    markdown = call.text("markdown_text")
    if markdown:
        if text or blocks:
            raise Refused("markdown_text_conflict")
        if len(markdown) > MARKDOWN_TEXT_MAX:
            raise Refused("msg_too_long")
        return markdown, check_message_blocks([{"type": "markdown", "text": markdown}]), []
    attachments = call.arguments.get("attachments")
    kept = as_payloads(attachments)
    if attachments is not None and (not isinstance(attachments, list) or len(kept) > 100):
        code = "too_many_attachments" if len(kept) > 100 else "invalid_attachments"
        raise Refused(code)
    for attachment in kept:
        check_message_blocks(attachment.get("blocks"))
    return text, blocks, kept


def metadata_of(call: Call) -> Payload | None:
    """The message's metadata, checked."""
    value = call.arguments.get("metadata")
    if value is None or value == {}:
        return None
    metadata = as_payload(value)
    if metadata is None or set(metadata) - {"event_type", "event_payload", "entities"}:
        raise Refused("invalid_metadata_format")
    event_type, payload = metadata.get("event_type"), as_payload(metadata.get("event_payload"))
    if not isinstance(event_type, str) or not event_type or payload is None:
        raise Refused("invalid_metadata_schema")
    if len(event_type) > _METADATA_TYPE_MAX or len(json.dumps(payload)) > _METADATA_CHARS_MAX:
        raise Refused("metadata_too_large")
    return metadata


def own_message(call: Call, channel: Channel, code: str) -> Message:
    """The app's own message that `ts` names."""
    message = call.message(channel, "ts")
    if not message.is_bot:
        raise Refused(code)
    return message


def update_message(call: Call) -> Payload:
    channel = call.joined_channel()
    message = own_message(call, channel, "cant_update_message")
    if message.stream is not None and message.stream.is_open:
        raise Refused("streaming_state_conflict")
    if channel.is_archived:
        raise Refused("is_archived")
    window = call.workspace.settings.edit_seconds
    if window is not None and time.time() - float(message.ts) > window:
        raise Refused("edit_window_closed")
    if len(call.text("text")) > UPDATE_TEXT_MAX:
        raise Refused("msg_too_long")
    previous = message_form(call.workspace, message, has_metadata=True)
    _replace_content(call, message)
    mark_edited(call, message, previous)
    form = message_form(call.workspace, message, has_metadata=True)
    return {"channel": channel.channel_id, "ts": message.ts, "text": message.text, "message": form}


def _replace_content(call: Call, message: Message) -> None:
    text, blocks, attachments = content_of(call)
    given = {key for key in ("blocks", "attachments", "metadata") if key in call.arguments}
    if not text and not given & {"blocks", "attachments"}:
        raise Refused("no_text")
    metadata = metadata_of(call)
    if text:
        message.text = text
    if text or "blocks" in given:
        message.blocks = blocks
    if "attachments" in given:
        message.attachments = attachments
    if "metadata" in given:
        message.metadata = metadata


def mark_edited(call: Call, message: Message, previous: Payload) -> None:
    """Counts an edit and tells of it. The platform marks a message as edited only where it has no blocks."""
    message.edits += 1
    if not message.blocks:
        message.edited_ts = call.workspace.new_ts()
    call.workspace.changed(message)
    message_events.tell_changed(call.workspace, message, previous)


def delete_message(call: Call) -> Payload:
    channel = call.joined_channel()
    message = own_message(call, channel, "cant_delete_message")
    previous = message_form(call.workspace, message, has_metadata=True)
    call.workspace.remove_message(message)
    message_events.tell_deleted(call.workspace, message, previous)
    return {"channel": channel.channel_id, "ts": message.ts}


def post_ephemeral(call: Call) -> Payload:
    channel = postable_channel(call)
    user_id = call.text("user")
    if user_id not in call.workspace.members:
        raise Refused("user_not_found")
    if user_id not in channel.members:
        raise Refused("user_not_in_channel")
    message = _new_message(call, channel)
    message.visible_to = user_id
    call.workspace.add_message(message)
    return {"message_ts": message.ts}


def get_permalink(call: Call) -> Payload:
    channel = call.channel()
    message = call.message(channel, "message_ts")
    link = f"{call.workspace.origin}/archives/{channel.channel_id}/p{message.ts.replace('.', '')}"
    if message.is_reply:
        link += f"?thread_ts={message.thread_ts}&cid={channel.channel_id}"
    return {"channel": channel.channel_id, "permalink": link}


def get_url_for_sockets(call: Call) -> Payload:
    if call.workspace.settings.events_url is not None:
        raise invalid_argument("Socket Mode is not turned on for this app")
    return {"url": call.platform.connection_url()}


METHODS = {
    "apps.connections.open": Method(run=get_url_for_sockets, tier="t1", caller="app"),
    "chat.delete": Method(run=delete_message, tier="t3", scopes=("chat:write",), required=("channel", "ts")),
    "chat.getPermalink": Method(run=get_permalink, tier="special", required=("channel", "message_ts")),
    "chat.postEphemeral": Method(run=post_ephemeral, tier="t4", scopes=("chat:write",), required=("channel", "user")),
    "chat.postMessage": Method(run=post_message, tier="post", scopes=("chat:write",), required=("channel",)),
    "chat.update": Method(run=update_message, tier="t3", scopes=("chat:write",), required=("channel", "ts")),
}
