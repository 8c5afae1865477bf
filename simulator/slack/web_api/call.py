"""One call of a Web API method, and how its arguments are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from simulator.slack.events.payloads import Payload, Refused
from simulator.slack.tenants import Tenants
from simulator.slack.world import Channel, Message, Workspace

ItemT = TypeVar("ItemT")

_DIGITS_MAX = 16
_FALSE = (False, None, "", "0", "false", "False", 0)


class Platform(Protocol):
    """What a method may ask of the platform beyond its workspace."""

    @property
    def tenants(self) -> Tenants:
        """Whose each bot token is."""
        ...

    def connection_url(self) -> str:
        """A fresh Socket Mode address."""
        ...


@dataclass(slots=True)
class Call:
    """The method's name and arguments, and the workspace whose token it carries."""

    platform: Platform
    workspace: Workspace
    method: str
    arguments: Payload

    def text(self, name: str, default: str = "") -> str:
        """A string argument; numbers are taken as their digits. Raises Refused for any other type."""
        value = self.arguments.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        raise invalid_argument(f"must be a string [json-pointer:/{name}]")

    def flag(self, name: str) -> bool:
        """A boolean argument in any of its spellings."""
        value = self.arguments.get(name)
        return value not in _FALSE

    def number(self, name: str, default: int, *, at_most: int) -> int:
        """A whole number from 1. Raises Refused where it is none."""
        text = self.text(name)
        if not text:
            return default
        if whole(text) < 1:
            raise Refused("invalid_limit" if name == "limit" else "invalid_arguments")
        return min(whole(text), at_most)

    def needs(self, scope: str) -> None:
        """Raises Refused where the app was not granted the scope."""
        if scope not in self.workspace.settings.scopes:
            raise missing_scope(self.workspace, scope)

    def channel(self, name: str = "channel") -> Channel:
        """The channel of an argument, where the bot may know of it. Raises Refused."""
        channel = self.workspace.channels.get(self.text(name))
        if channel is None or (channel.kind != "channel" and not self._is_in(channel)):
            raise Refused("channel_not_found")
        return channel

    def _is_in(self, channel: Channel) -> bool:
        return self.workspace.bot.user_id in channel.members

    def joined_channel(self, name: str = "channel") -> Channel:
        """The channel of an argument, where the bot is in it."""
        channel = self.channel(name)
        if not self._is_in(channel):
            raise Refused("not_in_channel")
        return channel

    def message(self, channel: Channel, name: str, code: str = "message_not_found") -> Message:
        """The message that an argument names. Ephemeral ones cannot be found again."""
        message = channel.messages.get(self.text(name))
        if message is None or message.is_tombstone or message.visible_to is not None:
            raise Refused(code)
        return message


def invalid_argument(sentence: str) -> Refused:
    """The refusal of an argument that has the wrong form."""
    return Refused("invalid_arguments", messages=(f"[ERROR] {sentence}",))


def whole(text: str) -> int:
    """The number that some digits write, -1 where they are none or too many."""
    return int(text) if len(text) < _DIGITS_MAX and text.isdecimal() else -1


def missing_scope(workspace: Workspace, needed: str) -> Refused:
    """The refusal for want of a scope, naming what was granted."""
    return Refused("missing_scope", needed=needed, provided=",".join(workspace.settings.scopes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """`scopes` are alternatives; `required` arguments must be there and not empty; `caller` is whose token it takes."""

    run: Callable[[Call], Payload]
    tier: str
    scopes: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    caller: Literal["bot", "app", "configuration"] = "bot"


SCARCE = frozenset({"conversations.history", "conversations.replies"})
SCARCE_ITEMS_MAX = 15


def paged(call: Call, items: Sequence[ItemT], *, limit: int = 100) -> tuple[list[ItemT], str]:
    """One page of the items by `cursor` and `limit`, and the cursor of the next one (empty: no more)."""
    cursor, size = call.text("cursor"), call.number("limit", limit, at_most=1000)
    if call.workspace.settings.is_history_scarce and call.method in SCARCE:
        size = min(size, SCARCE_ITEMS_MAX)
    start = whole(cursor or "0")
    if start < 0:
        raise Refused("invalid_cursor")
    end = start + size
    return list(items[start:end]), str(end) if end < len(items) else ""
