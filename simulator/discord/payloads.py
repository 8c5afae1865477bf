"""The payloads of Discord: every field that a client may read, made from what exists."""

from simulator.discord.files import signed_url
from simulator.discord.json_reading import Json, timestamp
from simulator.discord.settings import EVERYTHING
from simulator.discord.world import (
    FORUM,
    HAS_THREAD_FLAG,
    STAGE,
    VOICE,
    Attachment,
    Channel,
    Guild,
    Message,
    User,
    World,
)

ALL_PERMISSIONS = str(EVERYTHING)


def user_json(user: User) -> Json:
    body: Json = {
        "id": user.user_id,
        "username": user.name,
        "discriminator": "0",
        "global_name": None if user.is_bot else user.name.capitalize(),
        "avatar": None,
        "avatar_decoration_data": None,
        "banner": None,
        "public_flags": 0,
        "flags": 0,
        "primary_guild": None,
    }
    if user.is_bot:
        body["bot"] = True
    return body


def member_json(guild: Guild, user: User, *, with_user: bool = True) -> Json:
    body: Json = {
        "roles": [role_id for role_id in user.roles if role_id in guild.roles],
        "joined_at": timestamp(guild.created_at),
        "premium_since": None,
        "communication_disabled_until": None,
        "deaf": False,
        "mute": False,
        "flags": 0,
        "nick": None,
        "avatar": None,
        "banner": None,
        "pending": False,
    }
    if with_user:
        body["user"] = user_json(user)
    return body


def attachment_json(world: World, attachment: Attachment) -> Json:
    url = signed_url(world, attachment)
    body: Json = {
        "id": attachment.attachment_id,
        "filename": attachment.filename,
        "size": len(attachment.content),
        "url": url,
        "proxy_url": url,
        "content_type": attachment.content_type,
        "content_scan_version": 0,
    }
    if attachment.title is not None:
        body["title"] = attachment.title
    if attachment.description is not None:
        body["description"] = attachment.description
    if attachment.content_type.startswith("image/"):
        body["width"] = body["height"] = 512
    return body


def emoji_json(name: str) -> Json:
    """`name` is the character, or `name:id` for an emoji of a guild."""
    text, _, emoji_id = name.partition(":")
    return {"id": emoji_id or None, "name": text}


def message_json(world: World, message: Message, *, is_nested: bool = False) -> Json:
    thread = world.thread_of(message)
    body: Json = {
        "id": message.message_id,
        "channel_id": message.channel_id,
        "author": user_json(message.author),
        "content": message.content,
        "timestamp": timestamp(message.sent_at),
        "edited_timestamp": None if message.edited_at is None else timestamp(message.edited_at),
        "tts": False,
        "mention_everyone": message.is_everyone_mentioned,
        "mentions": [user_json(user) for user in message.mentions],
        "mention_roles": [],
        "attachments": [attachment_json(world, file) for file in message.attachments],
        "embeds": message.embeds,
        "components": message.components,
        "pinned": False,
        "type": message.kind,
        "flags": message.flags | (HAS_THREAD_FLAG if thread else 0),
    }
    if message.reactions:
        body["reactions"] = [_reaction_json(world, emoji, users) for emoji, users in message.reactions.items()]
    if thread is not None:
        body["thread"] = channel_json(world, thread)
    if message.poll is not None:
        body["poll"] = message.poll
    if message.nonce is not None:
        body["nonce"] = message.nonce
    _add_origin(world, message, body, is_nested=is_nested)
    return body


def _reaction_json(world: World, emoji: str, users: list[str]) -> Json:
    return {
        "emoji": emoji_json(emoji),
        "count": len(users),
        "count_details": {"normal": len(users), "burst": 0},
        "me": world.bot.user_id in users,
        "me_burst": False,
        "burst_colors": [],
    }


def _add_origin(world: World, message: Message, body: Json, *, is_nested: bool) -> None:
    """Where the message comes from: the one it answers, or the interaction it belongs to."""
    if message.reference is not None:
        body["message_reference"] = message.reference
        if message.snapshots:
            body["message_snapshots"] = message.snapshots
        elif not is_nested:
            channel = world.channels.get(str(message.reference.get("channel_id")))
            found = channel and channel.messages.get(str(message.reference.get("message_id")))
            body["referenced_message"] = found and message_json(world, found, is_nested=True)
    if message.interaction is not None:
        body["interaction_metadata"] = message.interaction
        body["application_id"] = world.bot.user_id
        body["webhook_id"] = world.bot.user_id


def snapshot_json(world: World, message: Message) -> Json:
    """What a forward keeps of a message: not its author (docs.discord.com, Message Snapshot Structure)."""
    body = message_json(world, message, is_nested=True)
    kept = ("type", "content", "embeds", "attachments", "timestamp", "edited_timestamp", "flags")
    return {name: body[name] for name in (*kept, "mentions", "mention_roles", "components")}


def message_event_json(world: World, message: Message) -> Json:
    """A message as the gateway sends it."""
    body = message_json(world, message)
    guild = world.guild_of(world.channels[message.channel_id])
    if guild is not None:
        body["guild_id"] = guild.guild_id
        body["member"] = member_json(guild, message.author, with_user=False)
        body["mentions"] = [
            {**user_json(user), "member": member_json(guild, user, with_user=False)} for user in message.mentions
        ]
    return body


def blank(body: Json) -> Json:
    """The message as an application without the message content intent receives it."""
    kept = {key: value for key, value in body.items() if key != "poll"}
    return {**kept, "content": "", "embeds": [], "attachments": [], "components": []}


def is_readable_without_intent(world: World, message: Message) -> bool:
    return (
        message.author is world.bot
        or world.bot in message.mentions
        or world.channels[message.channel_id].recipient is not None
    )


def channel_json(world: World, channel: Channel) -> Json:
    if channel.recipient is not None:
        return {
            "id": channel.channel_id,
            "type": channel.kind,
            "recipients": [user_json(channel.recipient)],
            "last_message_id": channel.last_message_id,
            "flags": 0,
        }
    if channel.is_thread:
        return _thread_json(world, channel)
    body: Json = {
        "id": channel.channel_id,
        "type": channel.kind,
        "guild_id": channel.guild_id,
        "name": channel.name,
        "position": int(channel.channel_id) % 1000,
        "permission_overwrites": world.settings.channel_overwrites.get(channel.channel_id, []),
        "nsfw": False,
        "parent_id": None,
        "topic": channel.topic,
        "rate_limit_per_user": 0,
        "last_message_id": channel.last_message_id,
        "last_pin_timestamp": None,
        "flags": 0,
    }
    if channel.kind in (VOICE, STAGE):
        body |= {"bitrate": 64000, "user_limit": 0, "rtc_region": None}
    if channel.kind == FORUM:
        tags = [
            {"id": tag_id, "name": name, "moderated": False, "emoji_id": None, "emoji_name": None}
            for tag_id, name in channel.available_tags.items()
        ]
        body |= {"available_tags": tags, "default_reaction_emoji": None, "default_sort_order": None}
        body |= {"default_forum_layout": 0}
    return body


def _thread_json(world: World, thread: Channel) -> Json:
    count = min(len(thread.messages), 50)
    body: Json = {
        "id": thread.channel_id,
        "type": thread.kind,
        "guild_id": thread.guild_id,
        "parent_id": thread.parent_id,
        "owner_id": thread.owner_id,
        "name": thread.name,
        "last_message_id": thread.last_message_id,
        "message_count": count,
        "member_count": min(len(thread.members), 50),
        "total_message_sent": len(thread.messages),
        "applied_tags": list(thread.applied_tags),
        "rate_limit_per_user": 0,
        "flags": 0,
        "thread_metadata": {
            "archived": thread.is_archived,
            "auto_archive_duration": thread.auto_archive_minutes,
            "archive_timestamp": timestamp(thread.archived_at),
            "locked": thread.is_locked,
            "create_timestamp": timestamp(thread.created_at),
        },
    }
    if world.bot.user_id in thread.members:
        body["member"] = thread_member_json(thread, world.bot.user_id)
    return body


def thread_member_json(thread: Channel, user_id: str) -> Json:
    return {
        "id": thread.channel_id,
        "user_id": user_id,
        "join_timestamp": timestamp(thread.members[user_id]),
        "flags": 0,
    }
