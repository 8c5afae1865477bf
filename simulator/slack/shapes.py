"""Slack's JSON forms of members, channels, files and messages."""

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from simulator.slack.events.payloads import Payload
from simulator.slack.members import standing_form
from simulator.slack.world import Channel, Member, Message, OpenView, StoredFile, Workspace

_FILE_TYPES: Final = {
    "text/plain": ("text", "Plain Text"),
    "text/csv": ("csv", "CSV"),
    "text/html": ("html", "HTML"),
    "text/markdown": ("markdown", "Markdown"),
    "application/json": ("json", "JSON"),
    "application/pdf": ("pdf", "PDF"),
    "application/zip": ("zip", "Zip"),
    "image/png": ("png", "PNG"),
    "image/jpeg": ("jpg", "JPEG"),
    "image/gif": ("gif", "GIF"),
}


def user_form(workspace: Workspace, member: Member) -> Payload:
    """A `user` object as users.info gives it."""
    local = datetime.now(ZoneInfo(member.time_zone))
    return {
        "id": member.user_id,
        **standing_form(member, workspace.team_id, workspace.organisation),
        "name": member.name,
        "deleted": False,
        "real_name": member.name,
        "tz": member.time_zone,
        "tz_label": local.tzname(),
        "tz_offset": int((local.utcoffset() or timedelta()).total_seconds()),
        "profile": {
            "real_name": member.name,
            "display_name": member.name,
            "real_name_normalized": member.name,
            "display_name_normalized": member.name,
            "team": member.home_team or workspace.team_id,
        },
        "is_bot": member.is_bot,
        "is_app_user": False,
        "updated": 0,
    }


def channel_form(workspace: Workspace, channel: Channel) -> Payload:
    """A `channel` object as conversations.info gives it."""
    form: Payload = {
        "id": channel.channel_id,
        "created": channel.created,
        "is_archived": channel.is_archived,
        "is_im": channel.kind == "im",
        "is_mpim": channel.kind == "mpim",
        "is_org_shared": False,
        "is_ext_shared": False,
        "context_team_id": workspace.team_id,
    }
    if channel.kind == "im":
        other = next((user for user in channel.members if user != workspace.bot.user_id), "")
        return {**form, "user": other, "is_user_deleted": False, "priority": 0}
    return {
        **form,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_channel": channel.kind == "channel",
        "is_group": channel.kind == "group",
        "is_private": channel.kind != "channel",
        "is_general": channel.name == "general",
        "is_shared": False,
        "is_member": workspace.bot.user_id in channel.members,
        "creator": next(iter(channel.members), ""),
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
        "num_members": len(channel.members),
    }


def url_name(stored: StoredFile) -> str:
    """The last segment of a file's addresses; a name of dots alone would lead elsewhere."""
    name = quote(stored.name.replace("/", "_"), safe="", errors="replace")
    return name if name.strip(".") else "file"


def page_url(workspace: Workspace, stored: StoredFile) -> str:
    """Where the page reads a file without a token."""
    return f"{workspace.origin}/open/{workspace.team_id}/{stored.key}/{url_name(stored)}"


def file_form(workspace: Workspace, stored: StoredFile) -> Payload:
    """A `file` object. `url_private` needs the bot's token."""
    filetype, pretty = _FILE_TYPES.get(stored.mime_type, ("binary", "Binary"))
    if stored.is_deleted:
        return {"id": stored.file_id, "mode": "tombstone"}
    base = f"{workspace.origin}/files-pri/{workspace.team_id}-{stored.file_id}"
    name = url_name(stored)
    return {
        "id": stored.file_id,
        "created": stored.created,
        "timestamp": stored.created,
        "name": stored.name,
        "title": stored.title,
        "mimetype": stored.mime_type,
        "filetype": filetype,
        "pretty_type": pretty,
        "user": stored.user_id,
        "user_team": workspace.team_id,
        "editable": False,
        "size": len(stored.content),
        "mode": "hosted",
        "is_external": False,
        "external_type": "",
        "is_public": True,
        "public_url_shared": False,
        "display_as_bot": False,
        "username": "",
        "url_private": f"{base}/{name}",
        "url_private_download": f"{base}/download/{name}",
        "permalink": f"{workspace.origin}/files/{stored.user_id}/{stored.file_id}/{name}",
        "has_rich_preview": False,
        "file_access": "visible",
    }


def bot_form(workspace: Workspace) -> Payload:
    """The `bot_profile` of the app's messages."""
    return {
        "id": workspace.bot_id,
        "deleted": False,
        "name": workspace.bot.name,
        "updated": 0,
        "app_id": workspace.app_id,
        "user_id": workspace.bot.user_id,
        "icons": {"image_36": "", "image_48": "", "image_72": ""},
        "team_id": workspace.team_id,
    }


def message_form(
    workspace: Workspace, message: Message, *, has_metadata: bool = False, is_listed: bool = False
) -> Payload:
    """A message as the API shows it; a listed one carries its reactions and the figures of its thread."""
    form: Payload = {
        "type": "message",
        "user": "USLACKBOT" if message.is_tombstone else message.user_id,
        "ts": message.ts,
        "text": message.text,
        "team": workspace.team_id,
    }
    author = workspace.members.get(message.user_id)
    if author is not None and author.home_team:
        form["team"] = form["user_team"] = form["source_team"] = author.home_team
    if message.is_bot and not message.is_tombstone:
        form["bot_id"], form["app_id"] = workspace.bot_id, workspace.app_id
        form["bot_profile"] = bot_form(workspace)
        form |= message.overrides
    _add_content(workspace, message, form)
    if message.edited_ts is not None:
        form["edited"] = {"user": message.user_id, "ts": message.edited_ts}
    if message.metadata is not None:
        form["metadata"] = message.metadata if has_metadata else _metadata_name(message.metadata)
    _add_thread(workspace, message, form)
    if is_listed and message.reactions:
        form["reactions"] = reaction_forms(message)
    return form


def _add_content(workspace: Workspace, message: Message, form: Payload) -> None:
    if message.app is not None:
        if "user" not in message.app:
            del form["user"]
        form |= message.app
    if message.subtype:
        form["subtype"] = message.subtype
    if message.blocks:
        form["blocks"] = message.blocks
    if message.attachments:
        form["attachments"] = message.attachments
    if message.file_ids:
        shown = _bare_form if workspace.settings.is_shared else file_form
        form["files"] = [shown(workspace, workspace.files[key]) for key in message.file_ids]
        form["upload"], form["display_as_bot"] = False, False


def _bare_form(_workspace: Workspace, stored: StoredFile) -> Payload:
    """A file of a shared channel: `files.info` tells the rest."""
    return {
        "id": stored.file_id,
        "created": 0,
        "timestamp": 0,
        "user": "",
        "mode": "file_access",
        "file_access": "check_file_info",
    }


def _metadata_name(metadata: Payload) -> Payload:
    # Without include_all_metadata the platform shows only that there is metadata, and of which type.
    return {"event_type": metadata["event_type"]}


def _add_thread(workspace: Workspace, message: Message, form: Payload) -> None:
    if message.thread_ts is None:
        return
    form["thread_ts"] = message.thread_ts
    if message.is_reply:
        root = workspace.channels[message.channel_id].messages.get(message.thread_ts)
        if root is not None:
            form["parent_user_id"] = root.user_id
    elif message.replies:
        form["reply_count"] = len(message.replies)
        form["reply_users_count"] = len(message.reply_users)
        form["latest_reply"] = next(reversed(message.replies))
        form["reply_users"] = list(message.reply_users)[:5]
        form["is_locked"] = False
        form["subscribed"] = workspace.bot.user_id in message.reply_users


def reaction_forms(message: Message) -> list[Payload]:
    """The reactions of a message as reactions.get lists them."""
    return [{"name": name, "users": list(users), "count": len(users)} for name, users in message.reactions.items()]


def view_form(workspace: Workspace, view: OpenView, state: Payload | None = None) -> Payload:
    """A view as views.open answers it and as a submission carries it."""
    content = view.content
    return {
        "id": view.view_id,
        "team_id": workspace.team_id,
        "type": content["type"],
        "blocks": content["blocks"],
        "private_metadata": content.get("private_metadata", ""),
        "callback_id": content.get("callback_id", ""),
        "state": {"values": state or {}},
        "hash": view.version,
        "title": content.get("title"),
        "clear_on_close": content.get("clear_on_close", False),
        "notify_on_close": content.get("notify_on_close", False),
        "close": content.get("close"),
        "submit": content.get("submit"),
        "previous_view_id": view.previous_view_id,
        "root_view_id": view.root_view_id,
        "app_id": workspace.app_id,
        "external_id": content.get("external_id", ""),
        "app_installed_team_id": workspace.team_id,
        "bot_id": workspace.bot_id,
    }
