"""What a person sees of a simulated platform, and what a person can do there."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Markdown:
    """`flavour` says whose rules to draw by: CommonMark with tables, Slack's mrkdwn, Discord's, or none."""

    text: str
    flavour: Literal["markdown", "mrkdwn", "discord", "plain"]
    size: Literal["normal", "header", "small"] = "normal"
    kind: Literal["markdown"] = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCard:
    title: str
    status: Literal["pending", "in_progress", "complete", "error"]
    detail: str = ""
    kind: Literal["task_card"] = "task_card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divider:
    kind: Literal["divider"] = "divider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    url: str
    alt: str
    kind: Literal["picture"] = "picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    control_id: str
    label: str
    style: Literal["normal", "primary", "danger", "link"] = "normal"
    url: str = ""
    is_disabled: bool = False
    kind: Literal["button"] = "button"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectOption:
    value: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    control_id: str
    placeholder: str
    options: tuple[SelectOption, ...]
    kind: Literal["select"] = "select"


Element = Markdown | TaskCard | Divider | Picture | Button | Select


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """`url` can be opened by the page without a token."""

    file_id: str
    name: str
    mime_type: str
    size_bytes: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReaction:
    emoji: str
    people: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """`thread_id` is the id of the thread that the message stands in, None at the top of a channel.

    `visible_to` names the one person of an ephemeral message.
    """

    message_id: str
    author: str
    is_bot: bool
    sent_at: float
    elements: tuple[Element, ...]
    edits: int = 0
    reactions: tuple[SeenReaction, ...] = ()
    files: tuple[SeenFile, ...] = ()
    thread_id: str | None = None
    visible_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenThread:
    thread_id: str
    title: str
    messages: tuple[SeenMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenChannel:
    """`messages` are those at the top; a Slack thread's id is its root's message id."""

    channel_id: str
    name: str
    is_direct: bool
    messages: tuple[SeenMessage, ...]
    threads: tuple[SeenThread, ...]
    typing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenForm:
    """A modal that is open for a person."""

    form_id: str
    person: str
    title: str
    fields: tuple["FormField", ...]
    submit_label: str = "Submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    field_id: str
    label: str
    is_long: bool = False
    is_required: bool = True
    options: tuple[SelectOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCommand:
    """A slash command that the bot has registered: `name` is whole ("agent run")."""

    name: str
    description: str
    options: tuple["CommandOption", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """With `is_suggested`, the bot offers values while a person types."""

    name: str
    kind: Literal["text", "file", "choice"]
    is_required: bool
    description: str = ""
    choices: tuple[str, ...] = ()
    is_suggested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShortcut:
    """An action of the bot in the menu of every message (`is_for_messages`), or one that needs no message."""

    name: str
    is_for_messages: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHome:
    """What the bot's own page shows to one person."""

    person: str
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFault:
    """A fault that the platform still shows: see `simulator/faults.py`."""

    kind: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformView:
    platform: Literal["slack", "discord"]
    workspace: str
    people: tuple[str, ...]
    bot_name: str
    is_bot_connected: bool
    channels: tuple[SeenChannel, ...]
    forms: tuple[SeenForm, ...] = ()
    commands: tuple[SeenCommand, ...] = ()
    shortcuts: tuple[SeenShortcut, ...] = ()
    homes: tuple[SeenHome, ...] = ()
    has_home: bool = False
    limits: dict[str, str] = field(default_factory=dict[str, str])
    faults: tuple[SeenFault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile:
    name: str
    content: bytes
    mime_type: str = "application/octet-stream"


class SimulatedPlatform(Protocol):
    """A platform as a person uses it. People, channels and messages are named by the ids that the view shows.

    Every action raises ValueError with a sentence when it makes no sense (no such message, a control that is gone).
    """

    def view(self) -> PlatformView: ...

    def changes(self) -> AsyncGenerator[int]:
        """Yields a growing version number whenever the view may have changed; at once for the first time."""
        ...

    async def say(
        self, person: str, channel_id: str, text: str, *, thread_id: str | None = None, files: Sequence[SentFile] = ()
    ) -> str:
        """The message's id. A mention is written `@botname` or `@person`, as a person types it."""
        ...

    async def edit(self, person: str, channel_id: str, message_id: str, text: str) -> None: ...

    async def delete(self, person: str, channel_id: str, message_id: str) -> None: ...

    async def react(
        self, person: str, channel_id: str, message_id: str, emoji: str, *, is_removed: bool = False
    ) -> None:
        """`emoji` as the platform writes it: `x` in Slack, the character in Discord."""
        ...

    async def press(self, person: str, channel_id: str, message_id: str, control_id: str, *, value: str = "") -> None:
        """A button, or a select with the value chosen. Raises TimeoutError where the bot did not answer in 3 s."""
        ...

    async def submit(self, person: str, form_id: str, values: dict[str, str]) -> None: ...

    async def command(
        self,
        person: str,
        channel_id: str,
        name: str,
        options: dict[str, str],
        *,
        thread_id: str | None = None,
        files: dict[str, SentFile] | None = None,
    ) -> str:
        """Calls a slash command; answers the id of the interaction. TimeoutError: no answer in 3 s."""
        ...

    async def use_shortcut(self, person: str, name: str, channel_id: str = "", message_id: str = "") -> str:
        """Uses an action of the bot on a message, or without one; answers the id of the interaction."""
        ...

    async def open_app(self, person: str, *, tab: str = "messages") -> None:
        """Opens the bot's own page ("home") or the direct messages with it."""

    async def suggest(
        self,
        person: str,
        channel_id: str,
        name: str,
        options: dict[str, str],
        option: str,
        *,
        thread_id: str | None = None,
    ) -> tuple[SelectOption, ...]:
        """What the bot offers for the option of a slash command, for what is typed. TimeoutError: no answer in 3 s."""
        ...

    def misbehave(self, fault: str, **settings: str | float | int) -> None:
        """Arms a fault: see `simulator/faults.py`. `misbehave("none")` clears all."""
        ...
