"""The state of a simulated workspace: people, channels, messages, files, views and what hangs on them."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from simulator.slack.events.payloads import Payload
from simulator.slack.members import Member
from simulator.slack.organisation import Organisation
from simulator.slack.sessions import AgentSession
from simulator.slack.settings import APP_ID, SlackSettings
from simulator.view import SeenMessage

Emit = Callable[["Workspace", str, Payload], None]


@dataclass(slots=True, kw_only=True)
class Message:
    """`replies` are the timestamps of a root's thread, `whispers` what one person sees : see `visible_to`."""

    ts: str
    channel_id: str
    user_id: str
    text: str
    is_bot: bool = False
    blocks: list[Payload] = field(default_factory=list[Payload])
    attachments: list[Payload] = field(default_factory=list[Payload])
    thread_ts: str | None = None
    subtype: str = ""
    file_ids: list[str] = field(default_factory=list[str])
    reactions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    metadata: Payload | None = None
    edited_ts: str | None = None
    edits: int = 0
    replies: dict[str, None] = field(default_factory=dict[str, None])
    whispers: dict[str, None] = field(default_factory=dict[str, None])
    reply_users: dict[str, None] = field(default_factory=dict[str, None])
    visible_to: str | None = None
    stream: "Stream | None" = None
    state: dict[str, Payload] = field(default_factory=dict[str, Payload])
    overrides: Payload = field(default_factory=dict[str, object])
    drawn: SeenMessage | None = None
    is_tombstone: bool = False
    app: Payload | None = None
    """What says that another app wrote the message: `bot_id` and what else the platform tells of it."""

    @property
    def is_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts


@dataclass(slots=True, kw_only=True)
class Stream:
    """A message that is written piece by piece. `tasks` are its task cards in order."""

    touched_at: float
    is_open: bool = True
    title: str = ""
    mode: str = "timeline"
    tasks: dict[str, Payload] = field(default_factory=dict[str, Payload])
    text: str = ""
    extra: list[Payload] = field(default_factory=list[Payload])


@dataclass(slots=True, kw_only=True)
class Channel:
    """`messages` holds every message by its timestamp, oldest first; `top` those outside threads."""

    channel_id: str
    name: str
    kind: str = "channel"  # channel | group | im | mpim, as `channel_type` in events
    members: dict[str, None] = field(default_factory=dict[str, None])
    is_archived: bool = False
    is_read_only: bool = False
    created: int = 0
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    top: dict[str, Message] = field(default_factory=dict[str, Message])
    statuses: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True)
class StoredFile:
    """`key` is the unguessable part of its upload and page addresses."""

    file_id: str
    key: str
    name: str
    title: str
    mime_type: str
    declared_bytes: int
    user_id: str
    created: int
    content: bytes = b""
    is_uploaded: bool = False
    is_complete: bool = False
    is_deleted: bool = False
    shares: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


@dataclass(slots=True, kw_only=True)
class OpenView:
    """A modal of one person, or a published home tab."""

    view_id: str
    user_id: str
    content: Payload
    version: str
    root_view_id: str
    previous_view_id: str | None = None
    is_home: bool = False


@dataclass(slots=True, kw_only=True)
class Trigger:
    user_id: str
    expires_at: float
    is_used: bool = False
    view_id: str | None = None


@dataclass(slots=True, kw_only=True)
class ResponseUrl:
    """Where an app may answer an interaction: five times within thirty minutes."""

    channel_id: str
    user_id: str
    expires_at: float
    message_ts: str | None = None
    thread_ts: str | None = None
    uses_left: int = 5


class Workspace:
    """One team. Every change goes through methods that keep the indexes true and raise the version."""

    def __init__(
        self, team_id: str, settings: SlackSettings, *, emit: Emit, organisation: Organisation | None = None
    ) -> None:
        self.team_id = team_id
        self.organisation = organisation
        self.settings = settings
        self.origin = ""  # where the simulator listens: "http://127.0.0.1:port"
        self.app_id = APP_ID
        self.bot_id = f"B{team_id[1:]}"
        self.members: dict[str, Member] = {}
        self.names: dict[str, Member] = {}
        self.channels: dict[str, Channel] = {}
        self.channel_names: dict[str, Channel] = {}
        self.direct: dict[str, Channel] = {}
        self.files: dict[str, StoredFile] = {}
        self.file_keys: dict[str, StoredFile] = {}
        self.views: dict[str, OpenView] = {}
        self.triggers: dict[str, Trigger] = {}
        self.response_urls: dict[str, ResponseUrl] = {}
        self.sessions: dict[tuple[str, str], AgentSession] = {}
        self.user_groups: dict[str, list[str]] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        self._emit = emit
        self._last_ts = 0
        self._made = 0
        self.bot = self._populate(settings)

    def _populate(self, settings: SlackSettings) -> Member:
        bot = self.add_member(settings.bot_name, is_bot=True)
        for name in settings.people:
            self.add_member(name)
        for member in list(self.members.values()):
            if not member.is_bot:
                self.direct_with(member.user_id, bot.user_id)
        for name in settings.channels:
            self.add_channel(name)
        return bot

    def new_id(self, prefix: str) -> str:
        """A fresh id in Slack's form, unique in this workspace."""
        self._made += 1
        return f"{prefix}0{self.team_id[-3:]}{self._made:06X}"

    def new_ts(self) -> str:
        """A message timestamp, strictly growing."""
        self._last_ts = max(time.time_ns() // 1000, self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def add_member(self, name: str, *, is_bot: bool = False) -> Member:
        """Raises ValueError where the name is taken."""
        if name in self.names:
            raise ValueError(f"there is already somebody called {name}")
        user_id = self.new_id("U")
        if self.organisation is not None:
            user_id = self.organisation.enter(self.team_id, name, user_id)
        member = Member(user_id=user_id, name=name, is_bot=is_bot)
        self.members[member.user_id] = self.names[name] = member
        for channel in self.channels.values():
            if channel.kind == "channel":
                channel.members[member.user_id] = None
        self.changed()
        return member

    def add_channel(self, name: str, *, kind: str = "channel", members: tuple[str, ...] | None = None) -> Channel:
        """A channel with these people in it (ids; None: everybody, the bot included)."""
        channel = Channel(
            channel_id=self.new_id("C"),
            name=name,
            kind=kind,
            created=int(time.time()),
            members=dict.fromkeys(self.members if members is None else members),
        )
        self.channels[channel.channel_id] = self.channel_names[name] = channel
        self.changed()
        return channel

    def direct_with(self, user_id: str, bot_user_id: str) -> Channel:
        """The direct message channel of a person and the bot, made when it is missing."""
        channel = self.direct.get(user_id)
        if channel is None:
            channel = Channel(
                channel_id=self.new_id("D"),
                name=self.members[user_id].name,
                kind="im",
                created=int(time.time()),
                members={user_id: None, bot_user_id: None},
            )
            self.direct[user_id] = self.channels[channel.channel_id] = channel
            self.changed()
        return channel

    def add_message(self, message: Message) -> None:
        """Puts a message in its channel and, where it is a reply, in its thread."""
        channel = self.channels[message.channel_id]
        channel.messages[message.ts] = message
        if message.is_reply and message.thread_ts is not None:
            root = channel.messages[message.thread_ts]
            if message.visible_to is None:
                root.thread_ts = root.ts
                root.replies[message.ts] = None
                root.reply_users[message.user_id] = None
            else:
                root.whispers[message.ts] = None
        else:
            channel.top[message.ts] = message
        if message.is_bot:
            channel.statuses.pop(message.thread_ts or message.ts, None)
        self.changed()

    def remove_message(self, message: Message) -> None:
        """Takes a message away; a root with replies stays as a tombstone."""
        channel = self.channels[message.channel_id]
        if message.replies:
            message.is_tombstone = True
            message.subtype, message.text = "tombstone", "This message was deleted."
            message.blocks, message.attachments, message.file_ids = [], [], []
            message.reactions, message.metadata = {}, None
        else:
            del channel.messages[message.ts]
            channel.top.pop(message.ts, None)
            if message.is_reply and message.thread_ts is not None:
                root = channel.messages.get(message.thread_ts)
                if root is not None:
                    root.replies.pop(message.ts, None)
                    root.whispers.pop(message.ts, None)
        self.changed(message)

    def new_trigger(self, user_id: str, *, is_expired: bool = False) -> str:
        """A trigger id, good for opening one view."""
        now = time.monotonic()
        for key in [key for key, kept in self.triggers.items() if kept.expires_at < now - 60]:
            del self.triggers[key]
        trigger_id = f"{self._made}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        expires_at = now - 1 if is_expired else now + self.settings.trigger_seconds
        self.triggers[trigger_id] = Trigger(user_id=user_id, expires_at=expires_at)
        return trigger_id

    def new_response_url(self, response: ResponseUrl) -> str:
        """The absolute address under which an app may answer."""
        now = time.monotonic()
        for key in [key for key, kept in self.response_urls.items() if kept.expires_at < now - 60]:
            del self.response_urls[key]
        key = secrets.token_urlsafe(24)
        self.response_urls[key] = response
        return f"{self.origin}/actions/{self.team_id}/{key}"

    def emit(self, kind: str, event: Payload) -> None:
        """Hands an event to whoever delivers it; `kind` is the name that an app subscribes to."""
        self._emit(self, kind, event)

    def changed(self, message: Message | None = None) -> None:
        """Notes that a person may now see something else, and which message, where it is one."""
        if message is not None:
            message.drawn = None
        self.version += 1
        self.on_change()
