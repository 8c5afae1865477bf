"""What exists in a simulated Discord: people, channels, messages, commands, interactions."""

import asyncio
import mimetypes
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.discord.json_reading import Json, snowflake
from simulator.discord.rest.errors import MISSING_ACCESS, UNKNOWN_CHANNEL, UNKNOWN_MESSAGE, Refused
from simulator.discord.settings import DiscordSettings
from simulator.faults import Faults

TEXT_CHANNEL, DIRECT_CHANNEL, VOICE, ANNOUNCEMENTS, STAGE, FORUM = 0, 1, 2, 5, 13, 15
ANNOUNCEMENT_THREAD, THREAD, PRIVATE_THREAD = 10, 11, 12
EPHEMERAL, LOADING, COMPONENTS_V2, HAS_THREAD_FLAG = 1 << 6, 1 << 7, 1 << 15, 1 << 5
SUPPRESS_EMBEDS, SUPPRESS_NOTIFICATIONS = 1 << 2, 1 << 12
TYPING_SECONDS = 10.0


@dataclass(slots=True, kw_only=True, eq=False)
class User:
    user_id: str
    name: str
    is_bot: bool = False
    roles: list[str] = field(default_factory=list[str])


@dataclass(slots=True, kw_only=True, eq=False)
class Attachment:
    attachment_id: str
    channel_id: str
    filename: str
    content: bytes
    content_type: str
    title: str | None = None
    description: str | None = None

    @property
    def shown_name(self) -> str:
        """What a person reads: the title, where the name itself had to be cleaned."""
        if self.title is None:
            return self.filename
        _, dot, extension = self.filename.rpartition(".")
        return f"{self.title}.{extension}" if dot else self.title


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    message_id: str
    channel_id: str
    author: User
    content: str = ""
    sent_at: float = field(default_factory=time.time)
    edited_at: float | None = None
    kind: int = 0
    flags: int = 0
    embeds: list[Json] = field(default_factory=list[Json])
    components: list[Json] = field(default_factory=list[Json])
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    mentions: list[User] = field(default_factory=list[User])
    is_everyone_mentioned: bool = False
    reactions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    edits: int = 0
    nonce: str | int | None = None
    reference: Json | None = None
    interaction: Json | None = None
    visible_to: str | None = None
    poll: Json | None = None
    snapshots: list[Json] = field(default_factory=list[Json])


@dataclass(slots=True, kw_only=True, eq=False)
class Channel:
    """A channel of a server, a direct channel or a thread; the thread's own fields are unused in the others.

    A direct channel has a recipient, and no guild. `available_tags` of a forum are names by ids.
    """

    channel_id: str
    kind: int
    name: str
    guild_id: str = ""
    recipient: User | None = None
    parent_id: str | None = None
    owner_id: str = ""
    created_at: float = field(default_factory=time.time)
    is_archived: bool = False
    is_locked: bool = False
    archived_at: float = field(default_factory=time.time)
    auto_archive_minutes: int = 1440
    members: dict[str, float] = field(default_factory=dict[str, float])
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    typing_until: dict[str, float] = field(default_factory=dict[str, float])
    topic: str | None = None
    available_tags: dict[str, str] = field(default_factory=dict[str, str])
    applied_tags: list[str] = field(default_factory=list[str])

    @property
    def is_thread(self) -> bool:
        return self.kind in (ANNOUNCEMENT_THREAD, THREAD, PRIVATE_THREAD)

    @property
    def last_message_id(self) -> str | None:
        return next(reversed(self.messages), None)


@dataclass(slots=True, kw_only=True, eq=False)
class Guild:
    """A server that the bot is in. `people` are in it beside the bot, by name; `roles` are names by ids."""

    guild_id: str
    name: str
    people: dict[str, User]
    roles: dict[str, str] = field(default_factory=dict[str, str])
    created_at: float = field(default_factory=time.time)


@dataclass(slots=True, kw_only=True, eq=False)
class Interaction:
    """`answered` is set by the first callback; `original` is the message that @original names; `choices` are what an
    autocompletion offers; `opened_by` opened the form that this one submits."""

    interaction_id: str
    token: str
    kind: int
    user: User
    channel_id: str
    created_at: float
    answered: asyncio.Future[None]
    source: Message | None = None
    opened_by: "Interaction | None" = None
    original: Message | None = None
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    choices: list[Json] = field(default_factory=list[Json])


@dataclass(slots=True, kw_only=True, eq=False)
class Form:
    form_id: str
    person: User
    channel_id: str
    title: str
    custom_id: str
    components: list[Json]
    opened_by: Interaction


@dataclass(slots=True, kw_only=True)
class Event:
    """Goes to the sessions that hold one of the intents (0: to all) and the shard of the guild (none: of direct
    messages). `blanked` is the form without content."""

    name: str
    payload: Json
    intent: int = 0
    blanked: Json | None = None
    guild_id: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """`guilds` are by id; the first is the one that the world began with. `apps` are other bots, by name."""

    bot: User
    people: dict[str, User]
    guilds: dict[str, Guild]
    token: str
    settings: DiscordSettings
    faults: Faults
    http_url: str = ""
    gateway_url: str = ""
    publish: Callable[[Event], None] = lambda event: None
    apps: dict[str, User] = field(default_factory=dict[str, User])
    channels: dict[str, Channel] = field(default_factory=dict[str, Channel])
    attachments: dict[str, Attachment] = field(default_factory=dict[str, Attachment])
    commands: dict[str, dict[str, Json]] = field(default_factory=dict[str, dict[str, Json]])
    interactions: dict[str, Interaction] = field(default_factory=dict[str, Interaction])
    forms: dict[str, Form] = field(default_factory=dict[str, Form])
    nonces: dict[str, Message] = field(default_factory=dict[str, Message])
    file_secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    version: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    def touch(self) -> None:
        """Something that a person can see has changed."""
        self.version += 1
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()

    async def wait_for_change(self, seen: int) -> int:
        while self.version == seen:
            future = asyncio.get_running_loop().create_future()
            self.waiting.add(future)
            try:
                await future
            finally:
                self.waiting.discard(future)
        return self.version

    def user(self, user_id: str) -> User | None:
        if user_id == self.bot.user_id:
            return self.bot
        return next((user for user in self.people.values() if user.user_id == user_id), None)

    @property
    def home(self) -> Guild:
        return next(iter(self.guilds.values()))

    def guild_of(self, channel: Channel) -> Guild | None:
        """None for a direct channel."""
        return self.guilds.get(channel.guild_id)

    def everybody(self, channel: Channel) -> list[User]:
        """Who may be named in the channel: those of its guild, and the bot."""
        guild = self.guild_of(channel)
        return [self.bot, *(guild.people if guild else self.people).values()]

    def channel(self, channel_id: str) -> Channel:
        """The channel for a call of the bot; raises Refused where there is none or it may not see it."""
        channel = self.channels.get(channel_id)
        if channel is None:
            raise Refused(UNKNOWN_CHANNEL)
        if {channel_id, channel.parent_id} & self.settings.hidden_channels:
            raise Refused(MISSING_ACCESS)
        return channel

    def message(self, channel_id: str, message_id: str) -> Message:
        """Ephemeral messages do not exist for calls outside their interaction."""
        message = self.channel(channel_id).messages.get(message_id)
        if message is None or message.visible_to is not None:
            raise Refused(UNKNOWN_MESSAGE)
        return message

    def thread_of(self, message: Message) -> Channel | None:
        """A thread that was started from a message has the message's id."""
        thread = self.channels.get(message.message_id)
        return thread if thread is not None and thread.parent_id == message.channel_id else None

    def add(self, message: Message) -> None:
        channel = self.channels[message.channel_id]
        channel.messages[message.message_id] = message
        channel.typing_until.pop(message.author.user_id, None)
        for attachment in message.attachments:
            self.attachments[attachment.attachment_id] = attachment
        self.touch()

    def add_attachment(self, channel_id: str, filename: str, content: bytes, content_type: str) -> Attachment:
        clean, title = clean_filename(filename)
        guessed = mimetypes.guess_type(clean)[0]
        attachment = Attachment(
            attachment_id=snowflake(),
            channel_id=channel_id,
            filename=clean,
            title=title,
            content=content,
            content_type=guessed or content_type,
        )
        self.attachments[attachment.attachment_id] = attachment
        return attachment


def clean_filename(name: str) -> tuple[str, str | None]:
    """Discord keeps letters, digits, `.`, `-` and `_` of a name; the title keeps what the person wrote."""
    flat = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(character for character in flat if character.isprintable())[:260]
    kept = "".join(
        character
        for character in printable.replace(" ", "_")
        if character.isascii() and (character.isalnum() or character in "._-")
    )
    if kept.startswith(".") and not printable.startswith("."):
        kept = f"unknown{kept}"
    kept = kept.lstrip(".") or "unknown"
    if kept == flat:
        return kept, None
    return kept, printable.rpartition(".")[0] or printable or None
