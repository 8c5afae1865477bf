"""Parses discord.py's objects into messages and commands; pure functions."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import cast

import discord

from bots.discord.address import ChannelLocation
from bots.discord.rest.files import build_file_ref, display_name_of_attachment
from bots.inbound.actions import CommandCalled, split_agent_prefix
from bots.inbound.commands.short_replies import BLANK, calls_agent_by_name, greeting_pattern
from bots.inbound.commands.table import parse_written_command
from core.domain.actions import (
    MEMBER,
    ActorContext,
    AskAnswered,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
)
from core.domain.approval import APPROVE_ONCE, DENY
from core.domain.outside_text import quote_lines, separate_address_marks
from core.domain.schedules import TriggerEvent
from core.domain.threads import APP_PREFIX, IncomingFile, Person

STOP_EMOJI = frozenset({"❌", "✖", "✖️", "🛑"})
VOTES = {"👍": APPROVE_ONCE, "👎": DENY}
"""The answers to an approval request that reactions on its message stand for."""
_SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff]")
_PEOPLE_SPEAK = (discord.MessageType.default, discord.MessageType.reply)
_USER = re.compile(r"<@!?(\d+)>")
_FIRST_MENTION = re.compile(
    rf"[\s\W]{{0,4}}?(?:(?:{greeting_pattern()})\s+)?"
    r"(?:<@(?:&(?P<role>\d+)|!?(?P<user>\d+))>|@(?:everyone|here)\b)",
    re.IGNORECASE,
)
_ROLE = re.compile(r"<@&(\d+)>")
_CHANNEL = re.compile(r"<#(\d+)>")
_EMOJI = re.compile(r"<a?:(\w+):\d+>")
FORWARDED_MAX = 4000
REPLIED = "It replies to a message of"


def parse_person(user: discord.abc.User) -> Person:
    """Returns the person with the name that is shown in this server."""
    return Person(person_id=str(user.id), name=user.display_name.strip() or str(user.id))


def parse_actor_context(
    user: discord.abc.User, location: ChannelLocation, *, expects_answer: bool = False
) -> ActorContext:
    """Returns the facts that Discord reports about the sender, with their roles. Backfilled messages lack roles. Direct
    messages have none."""
    if location.kind == "direct":
        return ActorContext(is_direct=True, expects_answer=expects_answer)
    roles = user.roles if isinstance(user, discord.Member) else None
    groups = None if roles is None else frozenset(str(role.id) for role in roles)
    return ActorContext(groups=groups, expects_answer=expects_answer)


def is_from_person(message: discord.Message) -> bool:
    """Whether the message was written by a person and not by a bot, a webhook or Discord."""
    return not message.author.bot and message.webhook_id is None and message.type in _PEOPLE_SPEAK


def find_app_ids(message: discord.Message, bot_user_id: int) -> frozenset[str]:
    """Returns the ids of the other app or webhook that wrote the message, if its text mentions the bot. Otherwise
    returns an empty set."""
    is_mention = str(bot_user_id) in _USER.findall(message.content)
    return _app_ids(message, bot_user_id) if is_mention else frozenset()


def _app_ids(message: discord.Message, bot_user_id: int) -> frozenset[str]:
    """Returns the ids of the other app or webhook that wrote the message in a server. Otherwise returns an empty
    set."""
    is_app = message.author.bot or message.webhook_id is not None
    is_other = message.author.id != bot_user_id and message.type in _PEOPLE_SPEAK
    if not (is_app and is_other and message.guild):
        return frozenset()
    ids = (message.author.id, message.application_id, message.webhook_id)
    return frozenset(str(one) for one in ids if one)


def parse_post_event(
    message: discord.Message, location: ChannelLocation | None, bot_user_id: int
) -> TriggerEvent | None:
    """Returns the message as an event that a schedule may wait for. Returns None unless it is a top-level message in a
    channel, or the first message of a forum post, that does not mention the bot."""
    app_ids = _app_ids(message, bot_user_id)
    is_spoken = is_from_person(message) or app_ids
    if location is None or not is_spoken or is_mentioned(message, bot_user_id) or find_app_ids(message, bot_user_id):
        return None
    begins_post = location.kind == "thread" and message.id == location.channel_id
    if location.kind != "channel" and not begins_post:
        return None
    return TriggerEvent(
        kind="app" if app_ids else "post",
        address=location.address(message.id),
        key=str(message.id),
        message_ref=str(message.id),
        happened_at=message.created_at,
        app_ids=app_ids,
        text=full_text(message, bot_user_id) if app_ids else "",
    )


def parse_emoji_event(name: str, message_id: int, location: ChannelLocation) -> TriggerEvent | None:
    """Returns the reaction as an event that a schedule may wait for. Returns None outside threads and channels that can
    have threads."""
    if location.kind not in ("channel", "thread"):
        return None
    emoji = _SKIN_TONES.sub("", name).replace("\ufe0f", "")
    return TriggerEvent(
        kind="emoji",
        address=location.address(message_id),
        key=f"{message_id} {emoji}",
        message_ref=str(message_id),
        emoji=emoji,
    )


def is_mentioned(message: discord.Message, bot_user_id: int) -> bool:
    """Whether the message mentions the bot, directly or by its managed role."""
    if any(user.id == bot_user_id for user in message.mentions):
        return True
    return any(role.tags is not None and role.tags.bot_id == bot_user_id for role in message.role_mentions)


def parse_message(
    message: discord.Message, location: ChannelLocation, bot_user_id: int
) -> IncomingMessage | CommandCalled | StopRequested | None:
    """Parses a message. Returns None if it is not for the agent. Whether a message in a thread is for the agent is
    decided later."""
    mentioned = is_mentioned(message, bot_user_id)
    app_ids = find_app_ids(message, bot_user_id)
    is_taken = is_from_person(message) or app_ids
    if not is_taken or not (mentioned or location.kind in ("direct", "thread")):
        return None
    reply_to = reply_author_id(message)
    is_addressed = mentioned or location.kind == "direct" or reply_to == bot_user_id
    is_to_others = reply_to not in (None, bot_user_id)
    if first := _FIRST_MENTION.match(message.content):
        own_role = message.guild and message.guild.self_role
        names_bot = first["user"] == str(bot_user_id) or (own_role and first["role"] == str(own_role.id))
        is_to_others = is_to_others or not names_bot
    text = text_with_names(message, bot_user_id)
    agent_id, request = split_agent_prefix(text)
    quoted = _quoted(message, bot_user_id) if is_addressed else None
    author = parse_person(message.author)
    if app_ids:
        author = replace(author, person_id=f"{APP_PREFIX}{author.person_id}")
    own = message.guild.get_member(bot_user_id) if message.guild else None
    incoming = IncomingMessage(
        address=location.address(message.id),
        dedupe_key=f"discord:{message.id}",
        message_ref=str(message.id),
        person=author,
        text=_with_origin(request, message, bot_user_id) if is_addressed else request,
        sent_at=message.created_at,
        is_addressed=is_addressed,
        is_by_name=calls_agent_by_name(text, own.display_name if own else ""),
        is_to_others=is_to_others,
        reply_ref=str(message.reference.message_id) if message.reference and reply_to else "",
        files=(*parse_files(message), *(parse_files(quoted) if quoted else ())),
        agent_id=agent_id,
        edited_at=message.edited_at,
        actor=ActorContext(app_ids=app_ids) if app_ids else parse_actor_context(message.author, location),
    )
    return parse_written_command(incoming, text.removeprefix("/"), has_files=bool(message.attachments))


def _with_origin(request: str, message: discord.Message, bot_user_id: int) -> str:
    """Returns the request followed by the message's poll and by the message that it replies to."""
    request = "\n".join([request, *poll_lines(message.poll)]).strip()
    quoted = _quoted(message, bot_user_id)
    return f"{request}\n\n{quote_message(quoted, bot_user_id, REPLIED)}" if quoted else request


def reply_author_id(message: discord.Message) -> int | None:
    """Returns the author of the message that this one replies to, 0 if the author is unknown, or None if it is not a
    reply."""
    if message.type is not discord.MessageType.reply or message.reference is None:
        return None
    resolved = message.reference.resolved
    return resolved.author.id if isinstance(resolved, discord.Message) else 0


def _quoted(message: discord.Message, bot_user_id: int) -> discord.Message | None:
    """Returns the message that this one replies to, or None if the agent wrote that message and therefore knows it."""
    if reply_author_id(message) in (None, 0, bot_user_id) or message.reference is None:
        return None
    resolved = message.reference.resolved
    return resolved if isinstance(resolved, discord.Message) else None


def quote_message(quoted: discord.Message, bot_user_id: int, introduction: str) -> str:
    """Returns a message that a request refers to as a quotation, so that none of its lines can pass for a part of the
    request."""
    who, text = parse_person(quoted.author), full_text(quoted, bot_user_id)[:FORWARDED_MAX]
    return f"[{introduction} {who.name} ({who.person_id}), who did not say it to you:]\n{quote_lines(text)}"


def full_text(message: discord.Message, bot_user_id: int) -> str:
    """Returns everything that the message shows: its text, embeds, layouts, poll and forwarded messages."""
    lines = (text_with_names(message, bot_user_id), *_shown_lines(message), *poll_lines(message.poll))
    return "\n".join(line for line in lines if line)


def _shown_lines(message: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    """Yields what an app's message, such as an alert, shows besides its text, in embeds and layouts."""
    for embed in message.embeds:
        yield from filter(None, (embed.title, embed.url, embed.description))
        yield from (f"{field.name}: {field.value}" for field in embed.fields)
        yield embed.footer.text or ""
    yield from chain.from_iterable(_shown_texts(one) for one in message.components)


def _shown_texts(component: object) -> Iterator[str]:
    """Yields the texts of a layout, which apps and the bot itself use for their messages."""
    if isinstance(component, discord.TextDisplay):
        yield component.content
    for inner in cast(Sequence[object], getattr(component, "children", ())):
        yield from _shown_texts(inner)


def poll_lines(poll: discord.Poll | None) -> Iterator[str]:
    """Yields the poll's question and its answers with their votes. Discord may leave out the votes while the poll is
    open."""
    if poll is None:
        return
    yield f"Poll{' (closed)' if poll.is_finalized() else ''}: {poll.question or '(without a question)'}"
    is_counted = poll.total_votes or poll.is_finalized()
    yield from (f"- {one.text}{f': {one.vote_count} votes' if is_counted else ''}" for one in poll.answers)


def parse_edit(message: discord.Message, location: ChannelLocation, bot_user_id: int) -> MessageEdited | None:
    """Parses an edit. Returns None for updates without an edit time, which Discord sends for link previews and pins."""
    if message.edited_at is None or not is_from_person(message):
        return None
    if location.kind not in ("direct", "thread") and not (
        is_mentioned(message, bot_user_id) or message.flags.has_thread
    ):
        return None
    is_addressed = location.kind == "direct" or is_mentioned(message, bot_user_id)
    request = split_agent_prefix(text_with_names(message, bot_user_id))[1]
    return MessageEdited(
        address=location.address(message.id),
        dedupe_key=f"discord:edit:{message.id}:{int(message.edited_at.timestamp() * 1000)}",
        message_ref=str(message.id),
        person=parse_person(message.author),
        text=_with_origin(request, message, bot_user_id) if is_addressed else request,
        is_addressed=is_addressed,
        sent_at=message.edited_at,
        actor=parse_actor_context(message.author, location),
    )


def parse_delete(
    message_id: int, location: ChannelLocation, author: discord.abc.User | None, received_at: datetime
) -> MessageDeleted | None:
    """Parses a deletion. `author` is known only if the message is cached, because Discord does not send it."""
    if author is not None and author.bot:
        return None
    return MessageDeleted(
        address=location.address(message_id),
        dedupe_key=f"discord:delete:{message_id}",
        message_ref=str(message_id),
        person=parse_person(author) if author else Person(person_id="", name="Somebody"),
        sent_at=max(received_at, discord.utils.snowflake_time(message_id)),
        actor=parse_actor_context(author, location) if author else ActorContext(groups=None),
    )


def is_command_emoji(emoji: str) -> bool:
    """Whether a reaction with the emoji stops or approves something."""
    return emoji in STOP_EMOJI or _SKIN_TONES.sub("", emoji) in VOTES


def parse_reaction(
    emoji: str,
    message_id: int,
    location: ChannelLocation,
    person: Person,
    received_at: datetime,
    actor: ActorContext = MEMBER,
) -> StopRequested | AskAnswered | None:
    """Parses a reaction that stops or approves something. Reactions have no id, so two within one second count as
    one."""
    # keys are kept longer than messages, so they must not contain the id of a person
    reactor = hashlib.sha256(f"{message_id}:{person.person_id}".encode()).hexdigest()[:16]
    key = f"discord:cross:{message_id}:{reactor}:{int(received_at.timestamp())}"
    if not is_command_emoji(emoji):
        return None
    if (vote := VOTES.get(_SKIN_TONES.sub("", emoji))) is not None:
        return AskAnswered(
            address=location.address(message_id),
            dedupe_key=key,
            ask_ref=str(message_id),
            text=vote,
            person=person,
            sent_at=received_at,
            actor=actor,
        )
    return StopRequested(
        address=location.address(message_id), dedupe_key=key, message_ref=str(message_id), person=person, actor=actor
    )


def text_with_names(message: discord.Message, bot_user_id: int) -> str:
    """Returns the text with names instead of ids, without mentions of the bot, and with forwarded messages quoted."""
    stickers = (f"[Sticker: {one.name}]" for one in message.stickers)
    text = "\n".join([_with_names(message.content, message, bot_user_id), *stickers])
    for snapshot in message.message_snapshots:
        words = (_with_names(snapshot.content, message, bot_user_id), *_shown_lines(snapshot))
        quoted = "\n".join(line for line in words if line)[:FORWARDED_MAX]
        text += f"\n\nForwarded message:\n{quote_lines(quoted)}"
    return text.strip(BLANK)


def _with_names(text: str, message: discord.Message, bot_user_id: int) -> str:
    people = {user.id: user.display_name for user in message.mentions}
    guild = message.guild
    own_role = guild.self_role.id if guild and guild.self_role else 0

    def user(match: re.Match[str]) -> str:
        user_id = int(match.group(1))
        return "" if user_id == bot_user_id else f"@{separate_address_marks(people.get(user_id, 'somebody'))}"

    def role(match: re.Match[str]) -> str:
        role_id = int(match.group(1))
        found = guild.get_role(role_id) if guild else None
        return "" if role_id == own_role else f"@{separate_address_marks(found.name) if found else 'role'}"

    def channel(match: re.Match[str]) -> str:
        found = guild.get_channel_or_thread(int(match.group(1))) if guild else None
        return f"#{separate_address_marks(found.name) if found else 'channel'}"

    text = _USER.sub(user, text)
    text = _ROLE.sub(role, text)
    text = _CHANNEL.sub(channel, text)
    return _EMOJI.sub(r":\1:", text).strip()


def parse_files(message: discord.Message) -> tuple[IncomingFile, ...]:
    """Returns the attachments, including those of forwarded messages."""
    found = [*message.attachments, *(a for s in message.message_snapshots for a in s.attachments)]
    return tuple(
        parse_attachment(attachment, channel_id=message.channel.id, message_id=message.id) for attachment in found
    )


def parse_attachment(attachment: discord.Attachment, *, channel_id: int = 0, message_id: int = 0) -> IncomingFile:
    """Builds a file reference that includes the message's id (0 for none), because links to attachments expire."""
    return IncomingFile(
        file_ref=build_file_ref(
            channel_id=str(channel_id), message_id=str(message_id), attachment_id=str(attachment.id), url=attachment.url
        ),
        name=display_name_of_attachment(attachment.filename, attachment.title or ""),
        mime_type=attachment.content_type or "application/octet-stream",
        size_bytes=attachment.size,
    )
