"""The bot's permissions in a channel, and what Discord refuses without them.

Sources: docs.discord.com, Permissions (the order of roles and overwrites, the implicit permissions of threads), Threads
(who may write in a locked thread and unlock it), and the JSON error codes.
"""

from typing import cast

from simulator.discord.json_reading import text_of
from simulator.discord.rest.errors import ARCHIVED, LOCKED, MISSING_ACCESS, MISSING_PERMISSIONS, Refused
from simulator.discord.settings import EVERYTHING
from simulator.discord.world import Channel, World

ADMINISTRATOR, MANAGE_CHANNELS = 1 << 3, 1 << 4
ADD_REACTIONS, VIEW, SEND, MANAGE_MESSAGES = 1 << 6, 1 << 10, 1 << 11, 1 << 13
ATTACH, READ_HISTORY = 1 << 15, 1 << 16
MANAGE_THREADS, CREATE_THREADS, CREATE_PRIVATE_THREADS = 1 << 34, 1 << 35, 1 << 36
SEND_IN_THREADS = 1 << 38


def bot_permissions(world: World, channel: Channel) -> int:
    """What the bot may do in a channel; a thread has its parent's permissions, and a direct message all."""
    if channel.recipient is not None:
        return EVERYTHING
    held = world.settings.bot_permissions
    if held & ADMINISTRATOR:
        return EVERYTHING
    place = channel.parent_id if channel.is_thread else channel.channel_id
    overwrites = world.settings.channel_overwrites.get(str(place), [])
    for owner in (channel.guild_id, world.bot.user_id):
        for one in overwrites:
            if text_of(one, "id") == owner:
                held = held & ~int(cast(str, one.get("deny", 0))) | int(cast(str, one.get("allow", 0)))
    return held


def require(world: World, channel: Channel, needed: int) -> None:
    """Raises Refused without the permissions; without View Channel the channel is closed altogether."""
    held = bot_permissions(world, channel)
    if not held & VIEW:
        raise Refused(MISSING_ACCESS)
    if needed & ~held:
        raise Refused(MISSING_PERMISSIONS)


def require_writing(world: World, channel: Channel, *, has_files: bool = False) -> None:
    """Raises Refused if the bot may not post. Locked threads need Manage Threads."""
    files = ATTACH if has_files else 0
    require(world, channel, files | (SEND_IN_THREADS if channel.is_thread else SEND))
    refuse_locked(world, channel)


def refuse_locked(world: World, channel: Channel) -> None:
    """Raises Refused if the bot may neither post in the locked thread nor edit what it posted there. It may still
    delete that, and add and remove reactions, while the thread is not archived (Discord's change log, Update to Locked
    Threads, 2023)."""
    if channel.is_locked and not bot_permissions(world, channel) & MANAGE_THREADS:
        raise Refused(ARCHIVED if channel.is_archived else LOCKED)
