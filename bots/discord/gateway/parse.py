"""Parses discord.py's objects into messages and commands; pure functions."""

import json
import re
from datetime import UTC, datetime
from typing import cast, get_args

import discord

from bots.discord.address import ChannelLocation
from bots.discord.limits import to_single_line
from bots.inbound.actions import (
    MEMBER,
    PLAN_COMMAND,
    ActorContext,
    CommandCalled,
    CommandName,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
    parse_admin_command,
    split_agent_prefix,
)
from core.domain.threads import IncomingFile, Person

STOP_EMOJI = frozenset({"❌", "✖", "✖️", "🛑"})
_PEOPLE_SPEAK = (discord.MessageType.default, discord.MessageType.reply)
_USER = re.compile(r"<@!?(\d+)>")
_ROLE = re.compile(r"<@&(\d+)>")
_CHANNEL = re.compile(r"<#(\d+)>")
_EMOJI = re.compile(r"<a?:(\w+):\d+>")
_USE = re.compile(r"use\s+(\S{1,64})", re.IGNORECASE)
FORWARDED_MAX = 4000
STOP_COMMAND: tuple[CommandName, str] = ("stop", "")


def parse_person(user: discord.abc.User) -> Person:
    """Returns the person with the name shown in this server."""
    return Person(
        person_id=str(user.id), name=to_single_line(user.display_name, 80) or str(user.id)
    )


def parse_standing(
    user: discord.abc.User, location: ChannelLocation, *, expects_answer: bool = False
) -> ActorContext:
    """Returns the sender's standing and roles. Backfilled messages lack roles; direct messages have none."""
    if location.kind == "direct":
        return ActorContext(is_direct=True, expects_answer=expects_answer)
    roles = user.roles if isinstance(user, discord.Member) else None
    groups = None if roles is None else frozenset(str(role.id) for role in roles)
    return ActorContext(groups=groups, expects_answer=expects_answer)


def is_from_person(message: discord.Message) -> bool:
    """Whether a person wrote the message, not a bot, a webhook or Discord."""
    return not message.author.bot and message.webhook_id is None and message.type in _PEOPLE_SPEAK


def is_mentioned(message: discord.Message, bot_user_id: int) -> bool:
    """Whether the message mentions the bot, directly or by its managed role."""
    if any(user.id == bot_user_id for user in message.mentions):
        return True
    return any(
        role.tags is not None and role.tags.bot_id == bot_user_id for role in message.role_mentions
    )


def parse_message(
    message: discord.Message, location: ChannelLocation, bot_user_id: int
) -> IncomingMessage | CommandCalled | StopRequested | None:
    """Parses a message. Returns None if it is not for the agent; for a message in a thread, that is decided later."""
    mentioned = is_mentioned(message, bot_user_id)
    if not is_from_person(message) or not (mentioned or location.kind in ("direct", "thread")):
        return None
    is_addressed = mentioned or location.kind == "direct"
    text = readable_text(message, bot_user_id)
    if not message.attachments and (
        word := _parse_word(message, text, location, is_addressed=is_addressed)
    ):
        return word
    agent_id, request = split_agent_prefix(text)
    return IncomingMessage(
        address=location.address(message.id),
        dedupe_key=f"discord:{message.id}",
        message_ref=str(message.id),
        author=parse_person(message.author),
        text=request,
        sent_at=message.created_at,
        is_addressed=is_addressed,
        files=parse_files(message),
        agent_id=agent_id,
        actor=parse_standing(message.author, location),
    )


def _parse_word(
    message: discord.Message, text: str, location: ChannelLocation, *, is_addressed: bool
) -> CommandCalled | StopRequested | None:
    """Returns the command if the whole message is one.

    Without a mention, only `stop` counts. People may be talking without the agent in the thread, but StopWished posts
    nothing if no run is active.
    """
    command = _parse_command(text)
    address, key = location.address(message.id), f"discord:{message.id}"
    who, actor = parse_person(message.author), parse_standing(message.author, location)
    if is_addressed and command:
        name, argument = command
        return CommandCalled(
            address=address,
            dedupe_key=key,
            name=name,
            argument=argument,
            person=who,
            actor=actor,
        )
    if command == STOP_COMMAND:
        return StopRequested(
            address=address, dedupe_key=key, message_ref="", person=who, actor=actor
        )
    return None


def parse_edit(
    message: discord.Message, location: ChannelLocation, bot_user_id: int
) -> MessageEdited | None:
    """Parses an edit. Returns None for updates without an edit time, which Discord sends for link previews and pins."""
    if message.edited_at is None or not is_from_person(message):
        return None
    if location.kind not in ("direct", "thread") and not (
        is_mentioned(message, bot_user_id) or message.flags.has_thread
    ):
        return None
    return MessageEdited(
        address=location.address(message.id),
        dedupe_key=f"discord:edit:{message.id}:{int(message.edited_at.timestamp() * 1000)}",
        message_ref=str(message.id),
        author=parse_person(message.author),
        text=split_agent_prefix(readable_text(message, bot_user_id))[1],
        sent_at=message.edited_at,
        actor=parse_standing(message.author, location),
    )


def parse_delete(
    message_id: int, location: ChannelLocation, author: discord.abc.User | None
) -> MessageDeleted | None:
    """Parses a deletion. `author` is known only if the message is cached, because Discord does not send it."""
    if author is not None and author.bot:
        return None
    return MessageDeleted(
        address=location.address(message_id),
        dedupe_key=f"discord:delete:{message_id}",
        message_ref=str(message_id),
        author=parse_person(author) if author else Person(person_id="", name="Somebody"),
        sent_at=datetime.now(UTC),
        actor=parse_standing(author, location) if author else ActorContext(groups=None),
    )


def parse_reaction(
    emoji: str,
    message_id: int,
    location: ChannelLocation,
    who: Person,
    received_at: datetime,
    actor: ActorContext = MEMBER,
) -> StopRequested | None:
    """Parses a stop reaction. Reactions have no id, so two within one second count as one."""
    if emoji not in STOP_EMOJI:
        return None
    return StopRequested(
        address=location.address(message_id),
        dedupe_key=f"discord:cross:{message_id}:{who.person_id}:{int(received_at.timestamp())}",
        message_ref=str(message_id),
        person=who,
        actor=actor,
    )


def readable_text(message: discord.Message, bot_user_id: int) -> str:
    """Returns the text with names instead of ids, without mentions of the bot, and with forwarded messages quoted."""
    text = _with_names(message.content, message, bot_user_id)
    for snapshot in message.message_snapshots:
        quoted = _with_names(snapshot.content, message, bot_user_id)[:FORWARDED_MAX]
        text += "\n\nForwarded message:\n" + "\n".join(f"> {line}" for line in quoted.split("\n"))
    return text.strip()


def _with_names(text: str, message: discord.Message, bot_user_id: int) -> str:
    people = {user.id: user.display_name for user in message.mentions}
    guild = message.guild
    own_role = guild.self_role.id if guild and guild.self_role else 0

    def user(match: re.Match[str]) -> str:
        user_id = int(match.group(1))
        return "" if user_id == bot_user_id else f"@{people.get(user_id, 'somebody')}"

    def role(match: re.Match[str]) -> str:
        role_id = int(match.group(1))
        found = guild.get_role(role_id) if guild else None
        return "" if role_id == own_role else f"@{found.name if found else 'role'}"

    def channel(match: re.Match[str]) -> str:
        found = guild.get_channel_or_thread(int(match.group(1))) if guild else None
        return f"#{found.name if found else 'channel'}"

    text = _USER.sub(user, text)
    text = _ROLE.sub(role, text)
    text = _CHANNEL.sub(channel, text)
    return _EMOJI.sub(r":\1:", text).strip()


def _parse_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the command and its argument if the whole message is a command, else None."""
    words = text.strip().removeprefix("/")
    if chosen := _USE.fullmatch(words):
        return "use", chosen[1]
    if planned := PLAN_COMMAND.fullmatch(words):
        return "plan", planned[1] or ""
    if admin := parse_admin_command(words):
        return admin
    word = words.strip(" .!").lower()
    return (cast(CommandName, word), "") if word in get_args(CommandName) else None


def parse_files(message: discord.Message) -> tuple[IncomingFile, ...]:
    """Returns the attachments, including those of forwarded messages."""
    found = [*message.attachments, *(a for s in message.message_snapshots for a in s.attachments)]
    return tuple(
        parse_attachment(attachment, channel_id=message.channel.id, message_id=message.id)
        for attachment in found
    )


def parse_attachment(
    attachment: discord.Attachment, *, channel_id: int = 0, message_id: int = 0
) -> IncomingFile:
    """Builds a file reference that holds the message id (0 for none), because attachment links expire."""
    reference = {
        "channel": str(channel_id),
        "message": str(message_id),
        "attachment": str(attachment.id),
        "url": attachment.url,
    }
    return IncomingFile(
        file_ref=json.dumps(reference),
        name=attachment.filename,
        mime_type=attachment.content_type or "application/octet-stream",
        size_bytes=attachment.size,
    )
