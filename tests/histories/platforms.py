"""What users do, as the payloads of Slack and Discord, and the product's parsers, which make actions of them."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

import discord
from discord.webhook.async_ import async_context

from bots.delivery.content import Content
from bots.discord.address import locate_channel
from bots.discord.gateway import parse
from bots.discord.interactions.controls import handle_interaction
from bots.discord.interactions.responses import InteractionHandler
from bots.discord.render.components import render_content as render_discord
from bots.inbound.actions import Outcome, UserAction
from bots.slack.events.parse import Ignored, ParseContext, parse_click, parse_event
from bots.slack.render.messages import render_content as render_slack
from bots.slack.web_api.client import Identity
from core.domain.actions import estimate_sent_at
from core.domain.threads import Address, Person
from core.ports import Reaction
from core.tasks import spawn
from simulator.discord import world as discord_world
from simulator.discord.gateway.events import tell_channel, tell_deleted, tell_message, tell_reaction
from simulator.discord.gateway.guild_payloads import guild_create_json
from simulator.discord.initial_world import build_world
from simulator.discord.payloads import user_json
from simulator.discord.people.interactions import COMPONENT, start_interaction
from simulator.discord.rules.component_tree import walk
from simulator.discord.settings import DiscordSettings
from simulator.slack import world as slack_world
from simulator.slack.events import message_events
from simulator.slack.people.controls import all_controls
from simulator.slack.settings import SlackSettings
from simulator.slack.shapes import bot_form, message_form

NAMES = ("alice", "bob", "carol")
BOT, OTHER_BOT = "threadhand", "helper"
Payload = dict[str, Any]
Receive = Callable[[UserAction], Awaitable[Outcome]]
Sign = Literal["stop", "yes", "no"]
SLACK_SIGNS: Mapping[Sign, str] = {"stop": "x", "yes": "+1", "no": "-1"}
DISCORD_SIGNS: Mapping[Sign, str] = {"stop": "❌", "yes": "👍", "no": "👎"}


@dataclass(frozen=True, slots=True)
class Event:
    """What the platform tells each bot, and the name of the event in this history. `place` is the thread."""

    key: str
    place: Address
    payload: Payload


@dataclass
class ChatMessage:
    """A message in the chat. `author` is None if the bot has posted it."""

    ref: str
    address: Address
    posted_at: datetime
    text: str = ""
    """What identifies a person's message."""
    author: Person | None = None
    words: str = ""
    """What people read now: the newest edit, or nothing after a deletion."""
    delivery_id: str = ""
    shown: list[Content] = field(default_factory=list[Content])
    """What the bot posted, followed by its edits."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The names of attached files by their delivery ids."""
    reaction: Reaction | None = None


class Slack:
    """A workspace with one channel. Each method returns what the platform tells the bot of what a user does."""

    name: Literal["slack"] = "slack"

    def __init__(self) -> None:
        self._events: list[Payload] = []
        settings = SlackSettings(people=NAMES, bot_name=BOT)
        self._workspace = slack_world.Workspace("T0SIM0001", settings, emit=lambda *told: self._events.append(told[2]))
        self._workspace.add_member(OTHER_BOT, is_bot=True)
        self._channel = self._workspace.channel_names["general"]
        self.people = {name: Person(person_id=one.user_id, name=name) for name, one in self._workspace.names.items()}
        ids = {"workspace_id": self._workspace.team_id, "channel_id": self._channel.channel_id}
        self.home = Address(platform="slack", thread_key="", **ids)

    def new_message(self, number: int) -> tuple[str, datetime]:
        """Returns the id of a message that is written now, and when that is by the platform's clock."""
        ref = f"{time.time():.3f}{number:03}"
        return ref, datetime.fromtimestamp(float(ref), UTC)

    def post(self, message: ChatMessage, text: str, reply_to: str = "") -> Event:
        del reply_to  # Slack has no replies to a message
        root = message.address.thread_key
        if root not in (message.ref, *self._channel.messages):  # it was there before, or is deleted
            self._workspace.add_message(self._message(root, None))
        stored = self._message(message.ref, message.author)
        stored.text, stored.thread_ts = text, root if root != message.ref else None
        self._workspace.add_message(stored)
        message_events.tell_posted(self._workspace, stored)
        return self._told(message, message.ref)

    def _message(self, ref: str, author: Person | None) -> slack_world.Message:
        user_id = (author or self.people[BOT]).person_id
        message = slack_world.Message(
            ts=ref, channel_id=self._channel.channel_id, user_id=user_id, text="", is_bot=author is None
        )
        if author == self.people[OTHER_BOT]:
            profile = bot_form(self._workspace) | {"id": "B0HELPER", "app_id": "A0HELPER", "user_id": user_id}
            message.app = {"user": user_id, "bot_id": "B0HELPER", "bot_profile": profile}
        return message

    def _told(self, message: ChatMessage, key: str) -> Event:
        return Event(key, message.address, self._events.pop())

    def _stored(self, message: ChatMessage) -> tuple[slack_world.Message, Payload]:
        stored = self._channel.messages[message.ref]
        return stored, message_form(self._workspace, stored, has_metadata=True)

    def edit(self, message: ChatMessage, text: str, key: str) -> Event:
        stored, previous = self._stored(message)
        stored.text, stored.edited_ts = text, f"{int(time.time())}.000000"
        message_events.tell_changed(self._workspace, stored, previous)
        return self._told(message, key)

    def delete(self, message: ChatMessage, key: str) -> Event:
        stored, previous = self._stored(message)
        self._workspace.remove_message(stored)
        message_events.tell_deleted(self._workspace, stored, previous)
        return self._told(message, key)

    def react(self, message: ChatMessage, sign: Sign, by: str, key: str) -> Event:
        stored, user_id = self._message(message.ref, message.author), self.people[by].person_id
        name = SLACK_SIGNS[sign]
        message_events.tell_reaction(self._workspace, stored, user_id=user_id, name=name, is_removed=False)
        return self._told(message, key)

    def press(self, message: ChatMessage, content: Content, label: str, by: str, key: str) -> Event:
        """Presses a button of the message, which shows the content."""
        stored = self._message(message.ref, None)
        stored.blocks, stored.thread_ts = list(render_slack(content).blocks), message.address.thread_key
        controls = (one.element for one in all_controls([{"block_id": "", **block} for block in stored.blocks]))
        button = next(one for one in controls if one.get("text", {}).get("text") == label)
        payload = {
            "type": "block_actions",
            "user": {"id": self.people[by].person_id, "name": by, "team_id": self._workspace.team_id},
            "channel": {"id": self._channel.channel_id, "name": self._channel.name},
            "message": message_form(self._workspace, stored),
            "actions": [{**button, "action_ts": f"{time.time():.6f}"}],
        }
        return Event(key, message.address, payload)

    def reader(self, _receive: Receive) -> "Slack":
        return self  # the parsers remember nothing

    def read(self, event: Event) -> Sequence[UserAction]:
        bot_id, user_id = self._workspace.bot_id, self.people[BOT].person_id
        context = ParseContext(
            identity=Identity(team_id=self._workspace.team_id, user_id=user_id, bot_id=bot_id),
            names={one.person_id: name for name, one in self.people.items()},
            reacted_thread_ts=event.place.thread_key,
        )
        read = parse_click if event.payload["type"] == "block_actions" else parse_event
        parsed = read(event.payload, context)
        return () if isinstance(parsed, Ignored) else (parsed,)


class Discord:
    """A server with one channel. See Slack."""

    name: Literal["discord"] = "discord"

    def __init__(self) -> None:
        self._events: list[discord_world.Event] = []
        self._world = world = build_world(
            token="", people=NAMES, channels=("general",), bot_name=BOT, guild_name="s", settings=DiscordSettings()
        )
        world.publish = self._events.append
        other = world.apps[OTHER_BOT] = discord_world.User(user_id="1002", name=OTHER_BOT, is_bot=True)
        self._users = {**world.people, BOT: world.bot, OTHER_BOT: other}
        self._channel = next(one for one in world.channels.values() if one.guild_id)
        self.people = {
            name: Person(person_id=one.user_id, name=name if one.is_bot else name.capitalize())
            for name, one in self._users.items()
        }
        ids = {"workspace_id": self._channel.guild_id, "channel_id": self._channel.channel_id}
        self.home = Address(platform="discord", thread_key="", **ids)

    def new_message(self, number: int) -> tuple[str, datetime]:
        ref = discord.utils.time_snowflake(datetime.now(UTC)) + number
        return str(ref), discord.utils.snowflake_time(ref)

    def post(self, message: ChatMessage, text: str, reply_to: str = "") -> Event:
        stored = self._message(message)
        self._write(stored, text)
        if reply_to:
            reference = {"type": 0, "channel_id": stored.channel_id, "message_id": reply_to}
            stored.kind, stored.reference = 19, {**reference, "guild_id": self._channel.guild_id}
        self._world.add(stored)
        tell_message(self._world, "MESSAGE_CREATE", stored)
        return self._told(message, message.ref)

    def _message(self, message: ChatMessage) -> discord_world.Message:
        user_id = (message.author or self.people[BOT]).person_id
        author = next(one for one in self._users.values() if one.user_id == user_id)
        channel_id = self._channel_of(message).channel_id
        return discord_world.Message(message_id=message.ref, channel_id=channel_id, author=author)

    def _channel_of(self, message: ChatMessage) -> discord_world.Channel:
        """Returns the channel or the thread of the message. The message that a thread begins with is in the channel."""
        if message.ref == message.address.thread_key:
            return self._channel
        thread = discord_world.Channel(
            channel_id=message.address.thread_key,
            kind=discord_world.THREAD,
            name="thread",
            guild_id=self._channel.guild_id,
            parent_id=self._channel.channel_id,
            owner_id=self._world.bot.user_id,
        )
        return self._world.channels.setdefault(thread.channel_id, thread)

    def _write(self, message: discord_world.Message, text: str) -> None:
        message.content = text
        message.mentions = [user for user in self._users.values() if f"<@{user.user_id}>" in text]

    def _told(self, message: ChatMessage, key: str) -> Event:
        """Returns the newest event. Before an event of a thread, bots are told that the thread exists."""
        told = [self._events.pop()]
        if thread := self._world.channels.get(message.address.thread_key):
            tell_channel(self._world, "THREAD_CREATE", thread)
            told.insert(0, self._events.pop())
        return Event(key, message.address, {"events": [(one.name, one.payload) for one in told]})

    def edit(self, message: ChatMessage, text: str, key: str) -> Event:
        stored = self._channel_of(message).messages[message.ref]
        self._write(stored, text)
        stored.edited_at = time.time()
        tell_message(self._world, "MESSAGE_UPDATE", stored)
        return self._told(message, key)

    def delete(self, message: ChatMessage, key: str) -> Event:
        tell_deleted(self._world, self._channel_of(message).messages.pop(message.ref))
        return self._told(message, key)

    def react(self, message: ChatMessage, sign: Sign, by: str, key: str) -> Event:
        tell_reaction(self._world, self._message(message), self._users[by], DISCORD_SIGNS[sign], is_removed=False)
        return self._told(message, key)

    def press(self, message: ChatMessage, content: Content, label: str, by: str, key: str) -> Event:
        source, body = self._message(message), cast(Payload, render_discord(content))
        source.components, source.flags = body["components"], body["flags"]
        button = next(one for one in walk(source.components) if one.get("label") == label)
        pressed = {"custom_id": button["custom_id"], "component_type": button["type"]}
        start_interaction(self._world, COMPONENT, self._users[by], self._channel_of(message), pressed, source=source)
        return self._told(message, key)

    def reader(self, receive: Receive) -> "DiscordReader":
        return DiscordReader(self._world, receive)


class DiscordReader:
    """The parsers of one process, behind discord.py's client without a connection, whose tasks carry out what users
    press."""

    def __init__(self, world: discord_world.World, receive: Receive) -> None:
        self._bot_id, self._guild_id = int(world.bot.user_id), int(world.home.guild_id)
        intents = discord.Intents(guilds=True, guild_messages=True, guild_reactions=True, message_content=True)
        self._client: Any = discord.Client(intents=intents)
        self._interactions = InteractionHandler(receive, cast(Any, None), cast(Any, None))
        self._state = self._client._connection
        self._state.user = discord.ClientUser(state=self._state, data=cast(Any, user_json(world.bot)))
        self._state._add_guild_from_data(guild_create_json(world, world.home))
        self._state.dispatch = self._on_event
        self._actions: list[UserAction | None] = []

    def read(self, event: Event) -> Sequence[UserAction]:
        """Returns the actions of the event. Those of a press come later, through `receive`."""
        async_context.set(cast(Any, _Acknowledged()))
        for name, payload in event.payload["events"]:
            self._state.parsers[name](payload)
        actions, self._actions = self._actions, []
        return [one for one in actions if one is not None]

    def _on_event(self, name: str, *values: Any) -> None:
        if name == "interaction":
            spawn(handle_interaction(values[0], self._interactions), name="press")
        if name not in ("message", "raw_message_edit", "raw_message_delete", "raw_reaction_add"):
            return
        value, now = values[0], estimate_sent_at()
        message = getattr(value, "message", value)
        channel_id = getattr(value, "channel_id", None) or message.channel.id
        location = locate_channel(self._client.get_channel(channel_id), self._guild_id)
        assert location is not None
        match name:
            case "message":
                action = parse.parse_message(message, location, self._bot_id)
            case "raw_message_edit":
                action = parse.parse_edit(message, location, self._bot_id)
            case "raw_message_delete":
                author = value.cached_message and value.cached_message.author
                action = parse.parse_delete(value.message_id, location, author, now)
            case _:
                who, standing = parse.parse_person(value.member), parse.parse_actor_context(value.member, location)
                action = parse.parse_reaction(str(value.emoji), value.message_id, location, who, now, standing)
        self._actions.append(action)


class _Acknowledged:
    """Discord's answer to what a bot says about an interaction."""

    async def create_interaction_response(self, *_ids: object, **_fields: object) -> Payload:
        return {"interaction": {"id": "1", "type": 3}}


Platform = Slack | Discord
Reader = Slack | DiscordReader
PLATFORMS: tuple[type[Platform], ...] = (Slack, Discord)
