"""What the gateway tells about a change: the event, the intent it needs, its form without message content."""

import time

from simulator.discord.json_reading import Json, text_of
from simulator.discord.payloads import (
    blank,
    channel_json,
    emoji_json,
    is_readable_without_intent,
    member_json,
    message_event_json,
    thread_member_json,
)
from simulator.discord.world import Channel, Event, Message, User, World

GUILDS = 1 << 0
_MESSAGES, _REACTIONS, _TYPING = 9, 10, 11


def _intent(channel: Channel, bit: int) -> int:
    """The bits of direct messages stand three above those of guilds."""
    return 1 << (bit if channel.recipient is None else bit + 3)


def tell_message(world: World, name: str, message: Message) -> None:
    """MESSAGE_CREATE or MESSAGE_UPDATE. An ephemeral message is told to nobody."""
    world.touch()
    if message.visible_to is not None:
        return
    channel = world.channels[message.channel_id]
    body = message_event_json(world, message)
    is_readable = is_readable_without_intent(world, message)
    _tell(world, channel, name, body, _MESSAGES, None if is_readable else blank(body))


def tell_deleted(world: World, message: Message) -> None:
    world.touch()
    if message.visible_to is None:
        channel = world.channels[message.channel_id]
        body: Json = {"id": message.message_id, "channel_id": message.channel_id}
        _tell(world, channel, "MESSAGE_DELETE", body, _MESSAGES)


def tell_bulk_deleted(world: World, channel: Channel, message_ids: list[str]) -> None:
    world.touch()
    body: Json = {"ids": message_ids, "channel_id": channel.channel_id}
    _tell(world, channel, "MESSAGE_DELETE_BULK", body, _MESSAGES)


def tell_reaction(world: World, message: Message, user: User, emoji: str, *, is_removed: bool) -> None:
    world.touch()
    channel = world.channels[message.channel_id]
    body: Json = {
        "user_id": user.user_id,
        "channel_id": message.channel_id,
        "message_id": message.message_id,
        "emoji": emoji_json(emoji),
        "burst": False,
        "type": 0,
    }
    if not is_removed:
        body["message_author_id"] = message.author.user_id
        if (guild := world.guild_of(channel)) is not None:
            body["member"] = member_json(guild, user)
    name = "MESSAGE_REACTION_REMOVE" if is_removed else "MESSAGE_REACTION_ADD"
    _tell(world, channel, name, body, _REACTIONS)


def tell_typing(world: World, channel: Channel, user: User) -> None:
    world.touch()
    body: Json = {"channel_id": channel.channel_id, "user_id": user.user_id, "timestamp": int(time.time())}
    if (guild := world.guild_of(channel)) is not None:
        body["member"] = member_json(guild, user)
    _tell(world, channel, "TYPING_START", body, _TYPING)


def tell_channel(world: World, name: str, channel: Channel, *, is_new: bool = False) -> None:
    """THREAD_CREATE, THREAD_UPDATE, CHANNEL_UPDATE and so on."""
    world.touch()
    body = channel_json(world, channel)
    if is_new:
        body["newly_created"] = True
    world.publish(Event(name=name, payload=body, intent=GUILDS, guild_id=channel.guild_id))


def tell_thread_deleted(world: World, thread: Channel) -> None:
    world.touch()
    body: Json = {
        "id": thread.channel_id,
        "guild_id": thread.guild_id,
        "parent_id": thread.parent_id,
        "type": thread.kind,
    }
    world.publish(Event(name="THREAD_DELETE", payload=body, intent=GUILDS, guild_id=thread.guild_id))


def tell_thread_members(
    world: World, thread: Channel, *, added: User | None = None, removed: User | None = None
) -> None:
    """Without the members intent Discord tells an application about itself alone."""
    world.touch()
    about_bot = world.bot in (added, removed)
    body: Json = {"id": thread.channel_id, "guild_id": thread.guild_id, "member_count": min(len(thread.members), 50)}
    guild = world.guilds[thread.guild_id]
    if added is not None:
        body["added_members"] = [
            {**thread_member_json(thread, added.user_id), "member": member_json(guild, added), "presence": None}
        ]
    if removed is not None:
        body["removed_member_ids"] = [removed.user_id]
    intent = GUILDS if about_bot else 1 << 1
    world.publish(Event(name="THREAD_MEMBERS_UPDATE", payload=body, intent=intent, guild_id=thread.guild_id))


def tell_interaction(world: World, body: Json) -> None:
    guild_id = text_of(body, "guild_id")
    world.publish(Event(name="INTERACTION_CREATE", payload=body, guild_id=guild_id))


def _tell(world: World, channel: Channel, name: str, body: Json, bit: int, blanked: Json | None = None) -> None:
    if channel.guild_id:
        body["guild_id"] = channel.guild_id
    world.publish(
        Event(name=name, payload=body, intent=_intent(channel, bit), blanked=blanked, guild_id=channel.guild_id)
    )
