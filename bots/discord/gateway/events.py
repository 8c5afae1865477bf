"""Handles gateway events: messages, edits, deletions and reactions."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import discord

from bots.discord.address import ChannelLocation, locate_channel
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.gateway.parse import (
    is_from_person,
    is_mentioned,
    parse_delete,
    parse_edit,
    parse_message,
    parse_person,
    parse_reaction,
    parse_standing,
)
from bots.discord.render.components import text_message
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import RestClient, translate_error
from bots.discord.rest.thread_opener import ThreadOpener
from bots.inbound.actions import ActorContext, IncomingMessage, Outcome
from bots.inbound.receiver import Receive
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.messages import JsonObject
from core.domain.threads import Person
from core.failpoints import Failpoint

log = logging.getLogger(__name__)

REPLY = Failpoint("discord.reply")
NO_THREADS_HERE = (
    "I work in threads, and this channel has none. Please mention me in a text channel."
)
MISSING_THREAD_PERMISSION = (
    "I am not allowed to open threads in this channel. Please ask someone who manages it to give me the permissions "
    "“Create Public Threads” and “Send Messages in Threads”."
)
THREAD_REFUSALS = {
    "160006": "This server has as many active threads as Discord allows. Please archive some, and mention me again."
}
"""Replies by Discord's error code, for threads that cannot be opened for a reason other than permissions."""


class EventHandler:
    """Parses gateway events and passes them to `receive`. The client logs exceptions.

    With `needs_roles`, fetches the authors of backfilled messages, because these messages lack the authors' roles.
    """

    def __init__(
        self,
        client: discord.Client,
        receive: Receive,
        rest: RestClient,
        thread_opener: ThreadOpener,
        channel_cursors: ChannelCursors,
    ) -> None:
        self._client = client
        self._rest = rest
        self._receive = receive
        self._thread_opener = thread_opener
        self._channel_cursors = channel_cursors
        self.needs_roles = False

    async def on_message(self, message: discord.Message) -> None:
        """Handles a live message after all older ones of its channel."""
        bot_user_id = self._bot_user_id()
        if message.author.id == bot_user_id:
            return
        self._channel_cursors.set_guild(message.channel.id, message.guild and message.guild.id)
        if not self._is_relevant(message, bot_user_id):
            await self._channel_cursors.record_unaddressed(message.channel.id, message.id)
            return
        async with self._channel_cursors.handling(message.channel.id, message.id):
            await self.handle_message(message)

    async def handle_message(self, message: discord.Message) -> None:
        """Handles a live or backfilled message. A message that was handled before has no effect.

        Raises StorageUnavailable or SurfaceError if it must be retried. Other exceptions would recur and block the
        channel, so they are logged and the message is skipped.
        """
        try:
            await self._process(message)
        except (StorageUnavailable, SurfaceError):
            raise
        except Exception:
            log.exception("discord: message %s was skipped", message.id)

    async def _process(self, message: discord.Message) -> None:
        location = await self._locate(message.channel, message.guild)
        if location is None:
            return
        inbound = parse_message(message, location, self._bot_user_id())
        if inbound is None:
            return
        if self.needs_roles and inbound.actor.groups is None and message.guild is not None:
            actor = await self._standing(message.guild, message.author, location)
            inbound = replace(inbound, actor=actor)
        if location.kind in ("direct", "thread") or not isinstance(inbound, IncomingMessage):
            await self._reply(message, await self._receive(inbound))
        elif problem := _why_no_thread(message, location):
            await self._reply(message, Outcome(notice=problem, is_ignored=True))
        else:
            await self._start_thread(message, inbound)

    async def on_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Handles an edited message."""
        message = payload.message
        before = payload.cached_message
        if before is not None and before.content == message.content:
            return
        if message.author.id == self._bot_user_id():
            return
        location = await self._locate(message.channel, message.guild)
        inbound = location and parse_edit(message, location, self._bot_user_id())
        if inbound:
            async with self._channel_cursors.lock_channel(message.channel.id):
                await self._receive(inbound)

    async def on_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        """Handles a deleted message."""
        cached = payload.cached_message
        location = await self._locate_by_id(payload.channel_id, payload.guild_id)
        inbound = location and parse_delete(
            payload.message_id, location, cached.author if cached else None
        )
        if inbound:
            async with self._channel_cursors.lock_channel(payload.channel_id):
                await self._receive(inbound)

    async def on_reaction(self, payload: discord.RawReactionActionEvent) -> None:
        """Handles an added reaction."""
        member = payload.member
        if payload.user_id == self._bot_user_id() or (member is not None and member.bot):
            return
        location = await self._locate_by_id(payload.channel_id, payload.guild_id)
        if location is None:
            return
        who = (
            parse_person(member)
            if member
            else Person(person_id=str(payload.user_id), name="Somebody")
        )
        inbound = parse_reaction(
            str(payload.emoji),
            payload.message_id,
            location,
            who,
            datetime.now(UTC),
            parse_standing(member, location) if member else _unknown_standing(location),
        )
        if inbound:
            await self._receive(inbound)

    async def _standing(
        self, guild: discord.Guild, author: discord.abc.User, location: ChannelLocation
    ) -> ActorContext:
        """Returns the author's standing. Fetches the author of a backfilled message, because it lacks their roles."""
        try:
            return parse_standing(await guild.fetch_member(author.id), location)
        except (discord.NotFound, discord.Forbidden):
            return parse_standing(author, location)
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            raise translate_error(error) from error

    async def _start_thread(self, message: discord.Message, inbound: IncomingMessage) -> None:
        """Stores the message, then opens its thread. A crash in between loses nothing, as the address is known."""
        address = inbound.address
        async with self._thread_opener.opening(address.thread_key):
            outcome = await self._receive(inbound)
            if outcome.run_id is not None:
                # also opens the thread of a redelivered message, because a crash may have prevented it the first time
                try:
                    await self._thread_opener.open_thread(address, inbound.text)
                    self._channel_cursors.set_guild(message.id, message.guild and message.guild.id)
                    await self._channel_cursors.advance(message.id, message.id)
                except SurfaceRefused as refused:
                    log.warning("discord: not allowed to open a thread: %s", refused.code)
                    outcome = Outcome(
                        notice=THREAD_REFUSALS.get(refused.code, MISSING_THREAD_PERMISSION)
                    )
                except SurfaceError as error:
                    log.warning("discord: a thread could not be opened yet: %s", error)
        await self._reply(message, outcome)

    async def _reply(self, message: discord.Message, outcome: Outcome) -> None:
        """Posts the notice as a reply, because Discord has no ephemeral messages outside interactions."""
        if not outcome.notice:
            return
        body: JsonObject = {
            **text_message(outcome.notice),
            "message_reference": {"message_id": str(message.id), "fail_if_not_exists": False},
            "nonce": delivery_marker.delivery_nonce(f"notice:{message.id}"),
            "enforce_nonce": True,
        }
        try:
            with REPLY:
                await self._rest.call(
                    "POST",
                    "/channels/{channel_id}/messages",
                    body=body,
                    channel_id=str(message.channel.id),
                )
        except SurfaceError as error:
            log.warning("a notice could not be posted: %s", error)

    def _is_relevant(self, message: discord.Message, bot_user_id: int) -> bool:
        if not is_from_person(message):
            return False
        return not isinstance(message.channel, discord.abc.GuildChannel) or is_mentioned(
            message, bot_user_id
        )

    def _bot_user_id(self) -> int:
        user = self._client.user
        return user.id if user else 0

    async def _locate(self, channel: object, guild: discord.Guild | None) -> ChannelLocation | None:
        if isinstance(channel, discord.PartialMessageable):
            return await self._locate_by_id(channel.id, guild.id if guild else channel.guild_id)
        return locate_channel(channel, guild.id if guild else None)

    async def _locate_by_id(self, channel_id: int, guild_id: int | None) -> ChannelLocation | None:
        """Returns the location of a channel from the cache. Fetches archived threads, which are not in the cache."""
        if guild_id is None:
            return ChannelLocation(kind="direct", channel_id=channel_id)
        channel = self._client.get_channel(channel_id)
        if channel is None:
            try:
                channel = await self._client.fetch_channel(channel_id)
            except (discord.Forbidden, discord.NotFound):
                return None
            except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
                raise translate_error(error) from error
        return locate_channel(channel, guild_id)


def _unknown_standing(location: ChannelLocation) -> ActorContext:
    is_direct = location.kind == "direct"
    return ActorContext(is_direct=is_direct, groups=frozenset() if is_direct else None)


def _why_no_thread(message: discord.Message, location: ChannelLocation) -> str:
    """Returns the reason why no thread can be opened for the message, or "" if one can."""
    if location.kind != "channel":
        return NO_THREADS_HERE
    guild = message.guild
    if guild is None or not isinstance(message.channel, discord.abc.GuildChannel):
        return ""
    allowed = message.channel.permissions_for(guild.me)
    return (
        ""
        if allowed.create_public_threads and allowed.send_messages_in_threads
        else MISSING_THREAD_PERMISSION
    )
