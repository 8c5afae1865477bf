"""What users do, as the payloads of Slack and Discord, and the product's parsers, which make actions of them."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import discord
from discord.webhook.async_ import async_context

from bots.delivery.content import Content
from bots.discord.address import locate_channel
from bots.discord.gateway.parse import parse_delete, parse_edit, parse_message, parse_person, parse_reaction
from bots.discord.gateway.parse import parse_standing as parse_member
from bots.discord.interactions.controls import AskComponent, RunButton
from bots.discord.interactions.responses import InteractionHandler
from bots.discord.render.components import render_content as render_discord
from bots.inbound.actions import DISCORD_EPOCH_SECONDS, Outcome, UserAction
from bots.slack.events.parse import Ignored, ParseContext, parse_click, parse_event
from bots.slack.render.messages import render_content as render_slack
from bots.slack.web_api.client import Identity
from core.domain.actions import time_of_arrival
from core.domain.threads import Address, Person
from core.ports import Reaction
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
    kind: str = ""


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


class Reader(Protocol):
    """The parsers of one process."""

    def read(self, event: Event) -> Sequence[UserAction]:
        """Returns the actions of the event. Those of a click may come later, through what the reader was given."""
        ...


class Platform(Protocol):
    """A platform with one channel, and what it tells bots when users do something."""

    name: Literal["slack", "discord"]
    people: dict[str, Person]

    def new_message(self, number: int) -> tuple[str, datetime]:
        """Returns the id of a message that is written now, and when that is by the platform's clock."""
        ...

    def place(self, thread_key: str) -> Address: ...

    def mention(self, name: str) -> str: ...

    def post(self, message: ChatMessage, text: str, reply_to: str = "") -> Event: ...

    def edit(self, message: ChatMessage, text: str, key: str) -> Event: ...

    def delete(self, message: ChatMessage, key: str) -> Event: ...

    def react(self, message: ChatMessage, sign: Sign, by: str, key: str) -> Event: ...

    def press(self, message: ChatMessage, content: Content, label: str, by: str, key: str) -> Event:
        """`message` shows the content, which has a button with the label."""
        ...

    def reader(self, receive: Receive) -> Reader: ...


class Slack:
    name: Literal["slack", "discord"] = "slack"

    def __init__(self) -> None:
        self._events: list[Payload] = []
        settings = SlackSettings(people=NAMES, bot_name=BOT)
        self._workspace = slack_world.Workspace("T0SIM0001", settings, emit=self._emit)
        self._workspace.add_member(OTHER_BOT, is_bot=True)
        self._channel = self._workspace.channel_names["general"]
        self.people = {name: Person(person_id=one.user_id, name=name) for name, one in self._workspace.names.items()}

    def _emit(self, _workspace: object, _kind: str, event: Payload) -> None:
        self._events.append(event)

    def new_message(self, number: int) -> tuple[str, datetime]:
        ref = f"{time.time():.3f}{number:03}"
        return ref, datetime.fromtimestamp(float(ref), UTC)

    def place(self, thread_key: str) -> Address:
        team_id, channel_id = self._workspace.team_id, self._channel.channel_id
        return Address(platform="slack", workspace_id=team_id, channel_id=channel_id, thread_key=thread_key)

    def mention(self, name: str) -> str:
        return f"<@{self.people[name].person_id}>"

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
        is_bot, author = author is None, author or self.people[BOT]
        message = slack_world.Message(
            ts=ref, channel_id=self._channel.channel_id, user_id=author.person_id, text="", is_bot=is_bot
        )
        if author.name == OTHER_BOT:
            own = {"id": "B0HELPER", "app_id": "A0HELPER", "name": OTHER_BOT, "user_id": author.person_id}
            profile = bot_form(self._workspace) | own
            message.app = {"user": author.person_id, "bot_id": "B0HELPER", "bot_profile": profile}
        return message

    def _told(self, message: ChatMessage, key: str) -> Event:
        return Event(key, message.address, self._events.pop())

    def edit(self, message: ChatMessage, text: str, key: str) -> Event:
        stored = self._channel.messages[message.ref]
        previous = message_form(self._workspace, stored, has_metadata=True)
        stored.text, stored.edited_ts = text, f"{int(time.time())}.000000"
        message_events.tell_changed(self._workspace, stored, previous)
        return self._told(message, key)

    def delete(self, message: ChatMessage, key: str) -> Event:
        stored = self._channel.messages[message.ref]
        previous = message_form(self._workspace, stored, has_metadata=True)
        self._workspace.remove_message(stored)
        message_events.tell_deleted(self._workspace, stored, previous)
        return self._told(message, key)

    def react(self, message: ChatMessage, sign: Sign, by: str, key: str) -> Event:
        stored, user_id = self._message(message.ref, message.author), self.people[by].person_id
        name = SLACK_SIGNS[sign]
        message_events.tell_reaction(self._workspace, stored, user_id=user_id, name=name, is_removed=False)
        return self._told(message, key)

    def press(self, message: ChatMessage, content: Content, label: str, by: str, key: str) -> Event:
        blocks = list(render_slack(content).blocks)
        button = next(
            one.element
            for block in blocks
            for one in all_controls([{"block_id": "b", **block}])
            if one.element.get("text", {}).get("text") == label
        )
        stored = self._message(message.ref, message.author)
        stored.blocks, stored.thread_ts = blocks, message.address.thread_key
        pressed = {"type": "button", "action_id": button["action_id"], "value": button["value"]}
        payload = {
            "type": "block_actions",
            "user": {"id": self.people[by].person_id, "name": by, "team_id": self._workspace.team_id},
            "channel": {"id": self._channel.channel_id, "name": self._channel.name},
            "message": message_form(self._workspace, stored),
            "actions": [{**pressed, "action_ts": f"{time.time():.6f}"}],
        }
        return Event(key, message.address, payload)

    def reader(self, receive: Receive) -> Reader:
        del receive
        bot = self.people[BOT]
        identity = Identity(team_id=self._workspace.team_id, user_id=bot.person_id, bot_id=self._workspace.bot_id)
        return _SlackReader(identity, {one.person_id: name for name, one in self.people.items()})


@dataclass(frozen=True, slots=True)
class _SlackReader:
    identity: Identity
    names: dict[str, str]

    def read(self, event: Event) -> Sequence[UserAction]:
        thread_ts = event.place.thread_key
        context = ParseContext(identity=self.identity, names=self.names, reacted_thread_ts=thread_ts)
        parse = parse_click if event.payload["type"] == "block_actions" else parse_event
        parsed = parse(event.payload, context)
        return () if isinstance(parsed, Ignored) else (parsed,)


class Discord:
    name: Literal["slack", "discord"] = "discord"

    def __init__(self) -> None:
        self._events: list[discord_world.Event] = []
        settings = DiscordSettings()
        self._world = world = build_world(
            token="", people=NAMES, channels=("general",), bot_name=BOT, guild_name="histories", settings=settings
        )
        world.publish = self._events.append
        other = world.apps[OTHER_BOT] = discord_world.User(user_id="1002", name=OTHER_BOT, is_bot=True)
        self._users = {**world.people, BOT: world.bot, OTHER_BOT: other}
        self._channel = next(one for one in world.channels.values() if one.guild_id)
        self.people = {
            name: Person(person_id=one.user_id, name=name if one.is_bot else name.capitalize())
            for name, one in self._users.items()
        }
        self._names = {one.person_id: name for name, one in self.people.items()}

    def new_message(self, number: int) -> tuple[str, datetime]:
        milliseconds = int(time.time() * 1000)
        ref = (milliseconds - int(DISCORD_EPOCH_SECONDS * 1000) << 22) + number
        return str(ref), datetime.fromtimestamp(milliseconds / 1000, UTC)

    def place(self, thread_key: str) -> Address:
        guild_id, channel_id = self._channel.guild_id, self._channel.channel_id
        return Address(platform="discord", workspace_id=guild_id, channel_id=channel_id, thread_key=thread_key)

    def mention(self, name: str) -> str:
        return f"<@{self.people[name].person_id}>"

    def post(self, message: ChatMessage, text: str, reply_to: str = "") -> Event:
        channel = self._channel_of(message)
        stored = self._message(message)
        self._write(stored, text)
        if reply_to:
            reference = {"type": 0, "channel_id": channel.channel_id, "message_id": reply_to}
            stored.kind, stored.reference = 19, {**reference, "guild_id": channel.guild_id}
        self._world.add(stored)
        tell_message(self._world, "MESSAGE_CREATE", stored)
        return self._told(message, message.ref)

    def _channel_of(self, message: ChatMessage) -> discord_world.Channel:
        """Returns the channel or the thread of the message. The message that a thread begins with is in the channel."""
        key = message.address.thread_key
        if message.ref == key:
            return self._channel
        thread = discord_world.Channel(
            channel_id=key,
            kind=discord_world.THREAD,
            name="thread",
            guild_id=self._channel.guild_id,
            parent_id=self._channel.channel_id,
            owner_id=self._world.bot.user_id,
        )
        return self._world.channels.setdefault(key, thread)

    def _message(self, message: ChatMessage) -> discord_world.Message:
        author = message.author or self.people[BOT]
        user, channel_id = self._users[self._names[author.person_id]], self._channel_of(message).channel_id
        return discord_world.Message(message_id=message.ref, channel_id=channel_id, author=user)

    def _write(self, message: discord_world.Message, text: str) -> None:
        message.content = text
        message.mentions = [user for name, user in self._users.items() if self.mention(name) in text]

    def _told(self, message: ChatMessage, key: str) -> Event:
        """Returns the newest event. Before an event of a thread, bots are told that the thread exists."""
        event = self._events.pop()
        place = message.address
        thread = self._world.channels.get(place.thread_key)
        if thread is not None:
            tell_channel(self._world, "THREAD_CREATE", thread)
        known = self._events.pop().payload if thread is not None else None
        return Event(key, place, {"event": event.payload, "thread": known}, event.name)

    def edit(self, message: ChatMessage, text: str, key: str) -> Event:
        stored = self._channel_of(message).messages[message.ref]
        self._write(stored, text)
        stored.edited_at = time.time()
        tell_message(self._world, "MESSAGE_UPDATE", stored)
        return self._told(message, key)

    def delete(self, message: ChatMessage, key: str) -> Event:
        stored = self._channel_of(message).messages.pop(message.ref)
        tell_deleted(self._world, stored)
        return self._told(message, key)

    def react(self, message: ChatMessage, sign: Sign, by: str, key: str) -> Event:
        tell_reaction(self._world, self._message(message), self._users[by], DISCORD_SIGNS[sign], is_removed=False)
        return self._told(message, key)

    def press(self, message: ChatMessage, content: Content, label: str, by: str, key: str) -> Event:
        source, body = self._message(message), render_discord(content)
        source.components, source.flags = body["components"], body["flags"]
        button = next(one for one in walk(source.components) if one.get("label") == label)
        payload = {"custom_id": button["custom_id"], "component_type": button["type"]}
        start_interaction(self._world, COMPONENT, self._users[by], self._channel_of(message), payload, source=source)
        return self._told(message, key)

    def reader(self, receive: Receive) -> Reader:
        return _DiscordReader(self._world, receive)


class _DiscordReader:
    """discord.py's own client without a connection. Its tasks carry out what users press."""

    def __init__(self, world: discord_world.World, receive: Receive) -> None:
        self._bot_id, self._guild_id = int(world.bot.user_id), int(world.home.guild_id)
        intents = discord.Intents(guilds=True, guild_messages=True, guild_reactions=True, message_content=True)
        self._client: Any = discord.Client(intents=intents)
        self._client.interactions = InteractionHandler(receive, None, None)  # pyright: ignore[reportArgumentType]
        self._client.add_dynamic_items(AskComponent, RunButton)
        self._state = self._client._connection
        self._state.user = discord.ClientUser(state=self._state, data=user_json(world.bot))
        self._state._add_guild_from_data(guild_create_json(world, world.home))
        self._state.dispatch = self._on_event
        self._actions: list[UserAction | None] = []

    def read(self, event: Event) -> Sequence[UserAction]:
        async_context.set(_Acknowledged())
        if event.payload["thread"]:
            self._state.parsers["THREAD_CREATE"](event.payload["thread"])
        self._state.parsers[event.kind](event.payload["event"])
        actions, self._actions = self._actions, []
        return [one for one in actions if one is not None]

    def _on_event(self, name: str, *values: Any) -> None:
        match name, values:
            case "message", (message,):
                location = locate_channel(message.channel, self._guild_id)
                self._actions.append(location and parse_message(message, location, self._bot_id))
            case "raw_message_edit", (edit,):
                location = locate_channel(edit.message.channel, self._guild_id)
                self._actions.append(location and parse_edit(edit.message, location, self._bot_id))
            case "raw_message_delete", (deletion,):
                location = locate_channel(self._client.get_channel(deletion.channel_id), self._guild_id)
                author = deletion.cached_message and deletion.cached_message.author
                now = time_of_arrival()
                self._actions.append(location and parse_delete(deletion.message_id, location, author, now))
            case "raw_reaction_add", (added,):
                location = locate_channel(self._client.get_channel(added.channel_id), self._guild_id)
                who, now = parse_person(added.member), time_of_arrival()
                parsed = location and parse_reaction(
                    str(added.emoji), added.message_id, location, who, now, parse_member(added.member, location)
                )
                self._actions.append(parsed)
            case _:
                return


class _Acknowledged:
    """Discord's answer to whatever a bot says about an interaction."""

    async def create_interaction_response(self, *_ids: object, **_fields: object) -> Payload:
        return {"interaction": {"id": "1", "type": 3}}

    async def execute_webhook(self, *_ids: object, **_fields: object) -> Payload:
        raise discord.ClientException("nobody reads it")


PLATFORMS: tuple[Callable[[], Platform], ...] = (Slack, Discord)
