"""Maps Discord channels and messages to thread addresses.

A thread that is created from a message has the message's id, so the thread key of a request in a channel is known
before its thread exists. A whole direct message channel counts as one thread."""

from dataclasses import dataclass
from typing import Literal

import discord

from core.domain.threads import Address

DIRECT = "dm"
DIRECT_WORKSPACE = "@me"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLocation:
    """The ids and kind of a channel. The kind `other` is a guild channel that has no threads. Not everybody in the
    parent channel can read a thread that `is_private`."""

    kind: Literal["direct", "thread", "channel", "other"]
    channel_id: int
    guild_id: int | None = None
    parent_id: int | None = None
    is_private: bool = False

    def address(self, message_id: int) -> Address:
        """Returns the address of a message's thread. In a channel, this is the thread that the message would start."""
        if self.kind == "direct":
            return Address(
                platform="discord", workspace_id=DIRECT_WORKSPACE, channel_id=str(self.channel_id), thread_key=DIRECT
            )
        in_thread = self.kind == "thread"
        channel_id = str(self.parent_id if in_thread else self.channel_id)
        return Address(
            platform="discord",
            workspace_id=str(self.guild_id),
            channel_id=f"{channel_id}/{self.channel_id}" if self.is_private else channel_id,
            thread_key=str(self.channel_id if in_thread else message_id),
        )


def locate_channel(channel: object, guild_id: int | None) -> ChannelLocation | None:
    """Returns the channel's location. Returns None if the channel must be fetched, because discord.py knows only a part
    of it."""
    match channel:
        case discord.Thread(id=channel_id, parent_id=parent_id, guild=guild):
            return ChannelLocation(
                kind="thread",
                channel_id=channel_id,
                guild_id=guild.id,
                parent_id=parent_id,
                is_private=channel.is_private(),
            )
        case discord.DMChannel(id=channel_id) | discord.GroupChannel(id=channel_id):
            return ChannelLocation(kind="direct", channel_id=channel_id)
        case discord.TextChannel(id=channel_id, guild=guild):
            return ChannelLocation(kind="channel", channel_id=channel_id, guild_id=guild.id)
        case discord.abc.GuildChannel(id=channel_id, guild=guild):
            return ChannelLocation(kind="other", channel_id=channel_id, guild_id=guild.id)
        case discord.PartialMessageable(id=channel_id, guild_id=None) if guild_id is None:
            return ChannelLocation(kind="direct", channel_id=channel_id)
        case _:
            return None


def is_direct_message(address: Address) -> bool:
    return address.thread_key == DIRECT


def message_channel_id(address: Address) -> str:
    """Returns the id of the channel or thread that contains the messages."""
    return address.channel_id if is_direct_message(address) else address.thread_key


def reaction_channel_id(address: Address, message_ref: str) -> str:
    """Returns the id of the channel that contains the message. A thread's starting message is in the parent channel."""
    return address.channel_id if message_ref == address.thread_key else message_channel_id(address)
