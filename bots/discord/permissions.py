"""Decides whether the bot can answer in a channel or thread, by its type, its lock and the bot's permissions."""

import discord

NO_THREADS_HERE = "I work in threads, and this channel has none. Please mention me in a text channel."
MISSING_THREAD_PERMISSION = (
    "I am not allowed to open threads in this channel. Please ask someone who manages it to give me the permissions "
    "“Create Public Threads” and “Send Messages in Threads”."
)
MISSING_WRITE_PERMISSION = (
    "I am not allowed to write in that thread. Please ask someone who manages the channel to give me the permission "
    "“Send Messages in Threads”."
)
THREAD_LOCKED = "That thread is locked, so I did nothing. Please ask me in another thread."
CLOSED_CODES = {"deleted": "10003", "locked": "160005"}
"""Discord's error codes for posts in a thread that was deleted or locked."""


def describe_obstacle(channel: object, allowed: discord.Permissions | None) -> str:
    """Returns a sentence for users on why the bot cannot answer a message in the channel or thread, or "" if it can.

    `allowed` are the bot's permissions there, or None if they are not known. A locked thread counts as closed even if
    the bot may write in it, because moderators lock threads to end them."""
    match channel:
        case discord.Thread(locked=True):
            return THREAD_LOCKED
        case discord.Thread():
            may_write = allowed is None or allowed.send_messages_in_threads
            return "" if may_write else MISSING_WRITE_PERMISSION
        case discord.TextChannel():
            may_open = allowed is None or (allowed.create_public_threads and allowed.send_messages_in_threads)
            return "" if may_open else MISSING_THREAD_PERMISSION
        case discord.abc.GuildChannel():
            return NO_THREADS_HERE
        case _:
            return ""


def find_bot_permissions(channel: object, guild: discord.Guild | None) -> discord.Permissions | None:
    """Returns the bot's permissions in a channel or thread, or None if they are not known."""
    if guild is None or not isinstance(channel, discord.abc.GuildChannel | discord.Thread):
        return None
    try:
        return channel.permissions_for(guild.me)
    except discord.ClientException:  # the thread's channel is not in the cache
        return None


def find_notice_channel_id(channel: object) -> str | None:
    """Returns the id of the channel in which to post that the bot cannot answer: the channel itself, or the parent of a
    thread.

    Returns None if only the person may read the notice."""
    match channel:
        case discord.Thread(type=discord.ChannelType.private_thread):
            return None
        case discord.Thread(parent_id=parent_id):
            return str(parent_id)
        case discord.abc.GuildChannel(id=channel_id):
            return str(channel_id)
        case _:
            return None
