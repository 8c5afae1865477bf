"""Handles gateway events: messages, edits, deletions and reactions."""

import logging
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import discord

from bots.discord.address import ChannelLocation, locate_channel
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.gateway.parse import (
    find_app_ids,
    is_command_emoji,
    is_from_person,
    is_mentioned,
    parse_actor_context,
    parse_delete,
    parse_edit,
    parse_emoji_event,
    parse_message,
    parse_person,
    parse_post_event,
    parse_reaction,
)
from bots.discord.permissions import describe_obstacle, find_bot_permissions, find_notice_channel_id
from bots.discord.render.components import build_text_message, split_notice
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import RestClient, get_text, translating_errors
from bots.discord.rest.thread_opener import ThreadOpener
from bots.inbound.actions import Admits, CommandCalled, Outcome, Receive, stop_request_from
from bots.inbound.retry_buffer import RetryBuffer
from bots.inbound.schedules import TriggerEventHandler
from core.domain.actions import ActorContext, IncomingMessage, StopRequested, estimate_sent_at
from core.domain.errors import StorageUnavailable, SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.schedules import TriggerEvent
from core.domain.threads import Person
from core.failpoints import Failpoint

log = logging.getLogger(__name__)

REPLY = Failpoint("discord.reply")
REFUSED_EMOJI = "❌"
ONLY_MENTIONS = "I can read only messages that mention me here. Please mention me in each message that is for me."
THREADS_TOLD_MAX = 10_000
UNHANDLED_AGE_MAX = timedelta(days=1)
MODERATOR = Person(person_id="", name="A moderator")
"""Discord does not report who locked or deleted a thread."""


class EventHandler:
    """Parses gateway events and passes them to `receive`. The client logs exceptions.

    `kept_events` retries edits, deletions and reactions. Missed messages are read again from the history.

    With `needs_roles`, fetches the authors of backfilled messages, because these messages lack the authors' roles.
    Without `sees_all_content`, Discord blanks messages that do not mention the bot. `admits` returns whether an author
    has access. If it is None, every author is notified when the bot cannot answer in a channel. `hear` handles events
    that are not addressed to the bot."""

    def __init__(
        self,
        client: discord.Client,
        receive: Receive,
        rest: RestClient,
        thread_opener: ThreadOpener,
        channel_cursors: ChannelCursors,
        kept_events: RetryBuffer,
    ) -> None:
        self._client = client
        self._rest = rest
        self._receive = receive
        self._thread_opener = thread_opener
        self._channel_cursors = channel_cursors
        self._kept_events = kept_events
        self.needs_roles = False
        self.sees_all_content = True
        self._told_blind: set[int] = set()
        self.admits: Admits | None = None
        self.hear: TriggerEventHandler | None = None

    async def on_message(self, message: discord.Message) -> None:
        """Handles a live message after all older messages of its channel."""
        bot_user_id = self._bot_user_id()
        if message.author.id == bot_user_id:
            return
        self._channel_cursors.record_guild_of_channel(message.channel.id, message.guild and message.guild.id)
        if is_from_person(message):
            in_channel = isinstance(message.channel, discord.abc.GuildChannel)
            is_relevant = is_mentioned(message, bot_user_id) or not in_channel
        else:
            is_relevant = bool(find_app_ids(message, bot_user_id))
        if not is_relevant:
            await self._hear_post(message)
            await self._channel_cursors.record_unaddressed(message.channel.id, message.id)
            return
        async with self._channel_cursors.handle_in_order(message.channel.id, message.id):
            allowed = find_bot_permissions(message.channel, message.guild)
            if allowed is None or allowed.read_message_history:
                await self.handle_message(message)
            else:  # the bot may not read the history, so the message cannot be read again
                await self._kept_events.handle_or_keep(
                    str(message.channel.id), f"message:{message.id}", partial(self.handle_message, message)
                )

    async def _hear_post(self, message: discord.Message) -> None:
        location = locate_channel(message.channel, message.guild and message.guild.id)
        await self._hear(parse_post_event(message, location, self._bot_user_id()))

    async def _hear(self, happened: TriggerEvent | None) -> None:
        """Passes the event to the schedules, and retries until it is stored."""
        if happened is not None and self.hear is not None:
            await self._kept_events.handle_or_keep(
                happened.address.channel_id, f"event:{happened.key}", partial(self.hear, happened)
            )

    async def handle_message(self, message: discord.Message, *, is_missed: bool = False) -> None:
        """Handles a live message, or one that was missed. A message that was handled before has no effect.

        Raises StorageUnavailable or SurfaceError if the message must be retried. Other exceptions would recur and block
        the channel, so they are logged and the message is skipped."""
        try:
            await self._process(message, is_missed=is_missed)
        except (StorageUnavailable, SurfaceError):
            raise
        except Exception:  # a message that breaks the handler would break it again after each restart
            log.exception("discord: message %s was skipped", message.id)
        await self._hear_post(message)

    async def _process(self, message: discord.Message, *, is_missed: bool) -> None:
        location = await self._locate(message.channel, message.guild)
        if location is None:
            return
        bot_user_id, thread = self._bot_user_id(), message.channel
        is_unaddressed = is_from_person(message) and not is_mentioned(message, bot_user_id)
        if isinstance(thread, discord.Thread) and is_unaddressed and not (message.content or self.sees_all_content):
            # Discord has blanked the message. In each of the bot's own threads, explain once that it reads only
            # mentions.
            is_new = thread.id not in self._told_blind and len(self._told_blind) < THREADS_TOLD_MAX
            if is_new and thread.owner_id == bot_user_id:
                self._told_blind.add(thread.id)
                await self._reply(message, Outcome(notice=ONLY_MENTIONS, is_ignored=True))
            return
        inbound = parse_message(message, location, bot_user_id)
        if inbound is None:
            return
        inbound = replace(inbound, is_missed=is_missed)
        if self.needs_roles and inbound.actor.groups is None and message.guild is not None:
            # a backfilled message lacks its author's roles
            author: discord.Member | discord.User = message.author
            with translating_errors(), suppress(discord.NotFound, discord.Forbidden):
                author = await message.guild.fetch_member(author.id)
            actor = parse_actor_context(author, location)
            # a user who has left has no roles
            inbound = replace(inbound, actor=replace(actor, groups=actor.groups or frozenset()))
        problem = describe_obstacle(message.channel, find_bot_permissions(message.channel, message.guild))
        # a command with files begins a conversation, too, because the files are added to its knowledge
        words = inbound.message if isinstance(inbound, CommandCalled) and inbound.files else None
        request = replace(words, text="") if words else inbound
        if problem and isinstance(request, IncomingMessage):
            await self._refuse(message, request, problem)
        elif location.kind in ("direct", "thread") or not isinstance(request, IncomingMessage):
            await self._reply(message, await self._receive(inbound))
        else:
            # Store the message, then open its thread, then let its run begin. A crash in between loses nothing, because
            # the address is known.
            async with self._thread_opener.opening(request.address.thread_key):
                open_thread = partial(
                    open_thread_for, request, self._thread_opener, self._channel_cursors, self._receive
                )
                is_command = inbound is not request
                outcome = await self._receive(inbound if is_command else replace(request, prepare=open_thread))
                # open the thread of a redelivered message too, because a crash may have prevented it the first time
                if not outcome.is_ignored if is_command else outcome.is_ignored and outcome.run_id is not None:
                    await open_thread()
            await self._reply(message, outcome)

    async def _refuse(self, message: discord.Message, inbound: IncomingMessage, problem: str) -> None:
        """Notifies the author that the bot cannot answer the message, in a place where the bot may write."""
        if not inbound.is_addressed:
            return
        if self.admits is not None and not await self.admits(inbound):
            await self._reply(message, await self._receive(inbound))
            return
        try:
            await self._rest.call(
                "PUT",
                "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me",
                channel_id=str(message.channel.id),
                message_id=str(message.id),
                emoji=REFUSED_EMOJI,
            )
        except SurfaceError as error:
            log.info("discord: a refused request has no reaction: %s", error)
        notice = Outcome(notice=problem, is_ignored=True)
        await self._reply(message, notice, channel_id=find_notice_channel_id(message.channel) or "")

    async def on_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        message = payload.message
        before = payload.cached_message
        if before is not None and before.content == message.content:
            return
        if message.author.id == self._bot_user_id():
            return
        edited_at = message.edited_at.isoformat() if message.edited_at else ""
        await self._kept_events.handle_or_keep(
            str(message.channel.id), f"edit:{message.id}:{edited_at}", partial(self._edit, message)
        )

    async def _edit(self, message: discord.Message) -> None:
        location = await self._locate(message.channel, message.guild)
        inbound = location and parse_edit(message, location, self._bot_user_id())
        if inbound:
            async with self._channel_cursors.lock_of_channel(message.channel.id):
                await self._receive(inbound)
                is_young = datetime.now(UTC) - message.created_at < UNHANDLED_AGE_MAX
                may_be_new = is_young and not message.flags.has_thread
                if may_be_new and is_mentioned(message, self._bot_user_id()):
                    # the edit may have added the mention, or text; a message that was handled before has no effect
                    await self.handle_message(message)

    async def on_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        cached = payload.cached_message
        await self._on_deletions(payload, {payload.message_id}, cached.author if cached else None)

    async def on_bulk_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        """Handles a moderator's deletion of several messages."""
        await self._on_deletions(payload, payload.message_ids, None)

    async def _on_deletions(
        self,
        payload: discord.RawMessageDeleteEvent | discord.RawBulkMessageDeleteEvent,
        message_ids: Set[int],
        author: discord.abc.User | None,
    ) -> None:
        now = estimate_sent_at()

        async def delete(message_id: int) -> None:
            location = await self._locate_by_id(payload.channel_id, payload.guild_id)
            if location and (inbound := parse_delete(message_id, location, author, now)):
                async with self._channel_cursors.lock_of_channel(payload.channel_id):
                    await self._receive(inbound)

        for message_id in sorted(message_ids):
            await self._kept_events.handle_or_keep(
                str(payload.channel_id), f"delete:{message_id}", partial(delete, message_id)
            )

    async def on_thread_closed(self, location: ChannelLocation, error_code: str) -> None:
        """Stops the run of a thread that was locked or deleted. Nothing is posted in the thread from now on.

        `error_code` is Discord's error code for posts in such a thread."""
        self._thread_opener.mark_closed(str(location.channel_id), error_code)
        now = datetime.now(UTC)
        stop = StopRequested(
            address=location.address(0),
            dedupe_key=f"discord:closed:{location.channel_id}:{int(now.timestamp())}",
            person=MODERATOR,
            actor=ActorContext(groups=None),
        )
        await self._kept_events.handle_or_keep(str(location.channel_id), stop.dedupe_key, partial(self._receive, stop))

    async def on_reaction(self, payload: discord.RawReactionActionEvent) -> None:
        """Handles an added reaction."""
        member = payload.member
        if payload.user_id == self._bot_user_id() or (member is not None and member.bot):
            return
        location = locate_channel(self._client.get_channel(payload.channel_id), payload.guild_id)
        if location is not None:
            await self._hear(parse_emoji_event(payload.emoji.name, payload.message_id, location))
        if not is_command_emoji(str(payload.emoji)):
            return
        now = estimate_sent_at()
        event_id = f"reaction:{payload.message_id}:{payload.user_id}:{payload.emoji}:{now}"
        await self._kept_events.handle_or_keep(str(payload.channel_id), event_id, partial(self._react, payload, now))

    async def _react(self, payload: discord.RawReactionActionEvent, received_at: datetime) -> None:
        location = await self._locate_by_id(payload.channel_id, payload.guild_id)
        if location is None:
            return
        member, is_direct = payload.member, location.kind == "direct"
        who = parse_person(member) if member else Person(person_id=str(payload.user_id), name="Somebody")
        unknown = ActorContext(is_direct=is_direct, groups=frozenset() if is_direct else None)
        standing = parse_actor_context(member, location) if member else unknown
        inbound = parse_reaction(str(payload.emoji), payload.message_id, location, who, received_at, standing)
        if inbound:
            await self._receive(inbound)

    async def _reply(self, message: discord.Message, outcome: Outcome, *, channel_id: str | None = None) -> None:
        """Posts the notice as a reply, because Discord has no ephemeral messages outside interactions.

        `channel_id` is the channel to post in if it is not the message's own, or "" for none. If Discord refuses the
        post there, the author gets the notice as a direct message."""
        if not outcome.notice or not is_from_person(message):
            return
        own_id = str(message.channel.id)
        place = own_id if channel_id is None else channel_id
        mention = "" if place == own_id else f"{message.author.mention} <#{own_id}>: "
        try:
            if place:
                try:
                    await self._post(place, f"{mention}{outcome.notice}", message, outcome.commands)
                    return
                except SurfaceRefused as refused:
                    log.info("discord: a notice was refused in its channel: %s", refused.code)
            recipient: JsonObject = {"recipient_id": str(message.author.id)}
            opened = await self._rest.call("POST", "/users/@me/channels", body=recipient)
            await self._post(get_text(opened, "id"), f"<#{own_id}>: {outcome.notice}", message)
        except SurfaceError as error:
            log.warning("a notice could not be posted: %s", error)

    async def _post(
        self, channel_id: str, notice: str, message: discord.Message, commands: Mapping[str, str] | None = None
    ) -> None:
        """Posts the notice about the message, in as many messages as it needs."""
        *parts, last = split_notice(notice)
        bodies = [*map(build_text_message, parts), build_text_message(last, commands=commands)]
        if channel_id == str(message.channel.id):
            bodies[0]["message_reference"] = {"message_id": str(message.id), "fail_if_not_exists": False}
        for number, body in enumerate(bodies):
            nonce = delivery_marker.delivery_nonce(f"notice:{channel_id}:{message.id}:{number}")
            with REPLY:
                await self._rest.call(
                    "POST",
                    "/channels/{channel_id}/messages",
                    body={**body, "nonce": nonce, "enforce_nonce": True},
                    channel_id=channel_id,
                )

    def _bot_user_id(self) -> int:
        user = self._client.user
        return user.id if user else 0

    async def _locate(self, channel: object, guild: discord.Guild | None) -> ChannelLocation | None:
        if isinstance(channel, discord.PartialMessageable):
            return await self._locate_by_id(channel.id, guild.id if guild else channel.guild_id)
        return locate_channel(channel, guild.id if guild else None)

    async def _locate_by_id(self, channel_id: int, guild_id: int | None) -> ChannelLocation | None:
        if guild_id is None:
            return ChannelLocation(kind="direct", channel_id=channel_id)
        return locate_channel(await self._rest.find_channel(self._client, channel_id), guild_id)


async def open_thread_for(
    request: IncomingMessage,
    opener: ThreadOpener,
    cursors: ChannelCursors,
    receive: Receive,
    *,
    adds_author: bool = False,
) -> None:
    """Opens the thread of a request in a channel. If Discord refuses, stops the request's run. The delivery of the run
    then tells the requester why."""
    try:
        await opener.open_thread(request.address, request.text or ", ".join(file.name for file in request.files))
        await cursors.record_thread(int(request.message_ref), int(request.address.workspace_id))
        if adds_author:
            await opener.add_member(request.address, request.person.person_id)
    except SurfaceRefused as refused:
        log.warning("discord: a thread was refused: %s", refused.code)
        await receive(replace(stop_request_from(request), dedupe_key=f"{request.dedupe_key}:unopened"))
    except SurfaceError as error:
        log.warning("discord: a thread could not be opened yet: %s", error)
