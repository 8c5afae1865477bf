"""Channels: reading them all, and changing the few things that a bot may."""

import time
from typing import cast

from simulator.discord.gateway.events import tell_channel, tell_thread_deleted
from simulator.discord.json_reading import Json
from simulator.discord.payloads import channel_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import WRONG_CHANNEL_TYPE, FormErrors, Refused
from simulator.discord.rules.permissions import MANAGE_CHANNELS, MANAGE_THREADS, SEND_IN_THREADS, VIEW, require
from simulator.discord.world import Channel, World

ARCHIVE_MINUTES = (60, 1440, 4320, 10080)


def get_channel(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    require(world, channel, VIEW)
    return Reply(body=channel_json(world, channel))


def edit_channel(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    body = call.fields()
    errors = FormErrors()
    if "name" in body:
        errors.length(("name",), body.get("name"), 100, 1)
    if body.get("auto_archive_duration") is not None:
        path = ("auto_archive_duration",)
        errors.choice(path, body.get("auto_archive_duration"), ARCHIVE_MINUTES)
    _check_tags(world, channel, body, errors)
    errors.raise_if_any()
    if channel.recipient is not None:
        raise Refused(WRONG_CHANNEL_TYPE)
    require(world, channel, _needed_to_edit(world, channel, body))
    if isinstance(name := body.get("name"), str):
        channel.name = name
    if channel.is_thread:
        _edit_thread(channel, body)
    elif "topic" in body:
        channel.topic = str(body.get("topic") or "") or None
    name = "THREAD_UPDATE" if channel.is_thread else "CHANNEL_UPDATE"
    tell_channel(world, name, channel)
    return Reply(body=channel_json(world, channel))


def _check_tags(world: World, channel: Channel, body: Json, errors: FormErrors) -> None:
    """A post has at most five of its forum's tags."""
    if "applied_tags" not in body:
        return
    forum = world.channels.get(channel.parent_id or "")
    known = forum.available_tags if forum is not None else {}
    tags = body.get("applied_tags")
    if errors.size(("applied_tags",), tags, 5):
        for at, tag in enumerate(cast(list[object], tags)):
            errors.choice(("applied_tags", at), tag, tuple(known))


def _needed_to_edit(world: World, channel: Channel, body: Json) -> int:
    """Whoever started a thread may rename and archive it, and everybody may reopen one that is not locked."""
    if not channel.is_thread:
        return MANAGE_CHANNELS
    is_own = channel.owner_id == world.bot.user_id
    is_reopening = body == {"archived": False} and not channel.is_locked
    if is_reopening or (is_own and "locked" not in body and not channel.is_locked):
        return SEND_IN_THREADS
    return MANAGE_THREADS


def _edit_thread(thread: Channel, body: Json) -> None:
    if isinstance(minutes := body.get("auto_archive_duration"), int):
        thread.auto_archive_minutes = minutes
    if isinstance(is_locked := body.get("locked"), bool):
        thread.is_locked = is_locked
    if isinstance(tags := body.get("applied_tags"), list):
        thread.applied_tags = [str(tag) for tag in cast(list[object], tags)]
    if isinstance(is_archived := body.get("archived"), bool):
        thread.is_archived, thread.archived_at = is_archived, time.time()


def delete_channel(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    if channel.recipient is not None:
        return Reply(body=channel_json(world, channel))
    require(world, channel, MANAGE_THREADS if channel.is_thread else MANAGE_CHANNELS)
    return Reply(body=remove(world, channel))


def remove(world: World, channel: Channel) -> Json:
    """Takes away the channel with its threads, or the thread. The message that started a thread stays."""
    body = channel_json(world, channel)
    for thread in list(world.channels.values()):
        if thread.parent_id == channel.channel_id:
            del world.channels[thread.channel_id]
            tell_thread_deleted(world, thread)
    del world.channels[channel.channel_id]
    if channel.is_thread:
        tell_thread_deleted(world, channel)
    else:
        tell_channel(world, "CHANNEL_DELETE", channel)
    return body
