"""Channels: reading them all, and changing the few things that a bot may."""

import time

from simulator.discord.gateway.events import tell_channel, tell_thread_deleted
from simulator.discord.json_reading import Json
from simulator.discord.payloads import channel_json
from simulator.discord.rest.call import Call, Reply
from simulator.discord.rest.errors import WRONG_CHANNEL_TYPE, FormErrors, Refused
from simulator.discord.world import THREAD, Channel, World

ARCHIVE_MINUTES = (60, 1440, 4320, 10080)


def get_channel(world: World, call: Call) -> Reply:
    return Reply(body=channel_json(world, world.channel(call.arguments["channel"])))


def edit_channel(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    body = call.fields()
    errors = FormErrors()
    if "name" in body:
        errors.length(("name",), body.get("name"), 100, 1)
    if body.get("auto_archive_duration") is not None:
        path = ("auto_archive_duration",)
        errors.choice(path, body.get("auto_archive_duration"), ARCHIVE_MINUTES)
    errors.raise_if_any()
    if channel.recipient is not None:
        raise Refused(WRONG_CHANNEL_TYPE)
    if isinstance(name := body.get("name"), str):
        channel.name = name
    if channel.kind == THREAD:
        _edit_thread(channel, body)
    elif "topic" in body:
        channel.topic = str(body.get("topic") or "") or None
    name = "THREAD_UPDATE" if channel.kind == THREAD else "CHANNEL_UPDATE"
    tell_channel(world, name, channel)
    return Reply(body=channel_json(world, channel))


def _edit_thread(thread: Channel, body: Json) -> None:
    if isinstance(minutes := body.get("auto_archive_duration"), int):
        thread.auto_archive_minutes = minutes
    if isinstance(is_locked := body.get("locked"), bool):
        thread.is_locked = is_locked
    if isinstance(is_archived := body.get("archived"), bool):
        thread.is_archived, thread.archived_at = is_archived, time.time()


def delete_channel(world: World, call: Call) -> Reply:
    channel = world.channel(call.arguments["channel"])
    if channel.recipient is not None:
        return Reply(body=channel_json(world, channel))
    body = channel_json(world, channel)
    for thread in list(world.channels.values()):
        if thread.parent_id == channel.channel_id:
            del world.channels[thread.channel_id]
            tell_thread_deleted(world, thread)
    del world.channels[channel.channel_id]
    if channel.kind == THREAD:
        tell_thread_deleted(world, channel)
    else:
        tell_channel(world, "CHANNEL_DELETE", channel)
    return Reply(body=body)
