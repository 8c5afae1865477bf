"""files.getUploadURLExternal, completeUploadExternal, info and delete."""

import mimetypes
import secrets
import time

from simulator.slack.block_kit.message_rules import check_message_blocks
from simulator.slack.events import message_events
from simulator.slack.events.payloads import Payload, Refused, as_payloads
from simulator.slack.shapes import file_form
from simulator.slack.web_api.call import Call, Method, invalid_argument, whole
from simulator.slack.web_api.messages import thread_of
from simulator.slack.world import Channel, Message, StoredFile

_FILES_MAX = 10


def get_upload_url(call: Call) -> Payload:
    length = call.text("length")
    if whole(length) < 1:
        raise invalid_argument("must be greater than 0 [json-pointer:/length]")
    if whole(length) > call.workspace.settings.file_bytes_max:
        raise Refused("file_upload_size_restricted")
    name = call.text("filename")
    stored = StoredFile(
        file_id=call.workspace.new_id("F"),
        key=secrets.token_urlsafe(24),
        name=name,
        title=name,
        mime_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
        declared_bytes=whole(length),
        user_id=call.workspace.bot.user_id,
        created=int(time.time()),
    )
    call.workspace.files[stored.file_id] = stored
    call.workspace.file_keys[stored.key] = stored
    upload_url = f"{call.workspace.origin}/upload/v1/{call.workspace.team_id}/{stored.key}"
    return {"upload_url": upload_url, "file_id": stored.file_id}


def complete_upload(call: Call) -> Payload:
    entries = as_payloads(call.arguments.get("files"))
    if not entries or len(entries) > _FILES_MAX:
        raise invalid_argument(f"1 to {_FILES_MAX} files allowed [json-pointer:/files]")
    if any(block.get("type") == "markdown" for block in as_payloads(call.arguments.get("blocks"))):
        # github.com/slackapi/python-slack-sdk/issues/1756: refused here, accepted by chat.postMessage
        raise Refused("internal_error")
    files = [_uploaded(call, entry) for entry in entries]
    channels = [_share_target(call, name) for name in _channel_ids(call)]
    for stored, entry in zip(files, entries, strict=True):
        stored.title = str(entry.get("title") or stored.title)
        stored.is_complete = True
    for channel in channels:
        _share(call, channel, files)
    return {"files": [file_form(call.workspace, stored) for stored in files]}


def _uploaded(call: Call, entry: Payload) -> StoredFile:
    stored = call.workspace.files.get(str(entry.get("id")))
    if stored is None or stored.is_deleted:
        raise Refused("file_not_found")
    if stored.is_complete:
        raise Refused("file_already_completed")
    if not stored.is_uploaded:
        raise Refused("file_not_uploaded")
    return stored


def _channel_ids(call: Call) -> list[str]:
    many = [name for name in call.text("channels").split(",") if name]
    one = call.text("channel_id")
    return [one, *many] if one else many


def _share_target(call: Call, channel_id: str) -> Channel:
    call.arguments["channel"] = channel_id
    channel = call.joined_channel()
    if channel.is_archived:
        raise Refused("is_archived")
    return channel


def _share(call: Call, channel: Channel, files: list[StoredFile]) -> None:
    workspace = call.workspace
    message = Message(
        ts=workspace.new_ts(),
        channel_id=channel.channel_id,
        user_id=workspace.bot.user_id,
        is_bot=True,
        text=call.text("initial_comment"),
        blocks=check_message_blocks(call.arguments.get("blocks")),
        thread_ts=thread_of(call, channel),
        subtype="file_share",
        file_ids=[stored.file_id for stored in files],
    )
    for stored in files:
        stored.shares.setdefault(channel.channel_id, []).append(message.ts)
    workspace.add_message(message)
    message_events.tell_posted(workspace, message)


def _known(call: Call) -> StoredFile:
    stored = call.workspace.files.get(call.text("file"))
    if stored is None or not stored.is_complete:
        raise Refused("file_not_found")
    if stored.is_deleted:
        raise Refused("file_deleted")
    return stored


def get_file_info(call: Call) -> Payload:
    stored = _known(call)
    shares = {channel_id: [{"ts": ts} for ts in timestamps] for channel_id, timestamps in stored.shares.items()}
    form = file_form(call.workspace, stored)
    form |= {"channels": list(stored.shares), "shares": {"public": shares}}
    return {"file": form, "comments": [], "response_metadata": {"next_cursor": ""}}


def delete_file(call: Call) -> Payload:
    stored = _known(call)
    if stored.user_id != call.workspace.bot.user_id:
        raise Refused("cant_delete_file")
    stored.is_deleted, stored.content = True, b""
    for channel_id, timestamps in stored.shares.items():
        for ts in timestamps:
            message = call.workspace.channels[channel_id].messages.get(ts)
            call.workspace.changed(message)
    return {}


METHODS = {
    "files.completeUploadExternal": Method(
        run=complete_upload, tier="t4", scopes=("files:write",), required=("files",)
    ),
    "files.delete": Method(run=delete_file, tier="t3", scopes=("files:write",), required=("file",)),
    "files.getUploadURLExternal": Method(
        run=get_upload_url, tier="t4", scopes=("files:write",), required=("filename", "length")
    ),
    "files.info": Method(run=get_file_info, tier="t4", scopes=("files:read",), required=("file",)),
}
