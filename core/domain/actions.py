"""Actions of users in chat that are stored. Each is a frozen value, from the parser to the transaction that applies
it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from core.domain.threads import Address, IncomingFile, InputKind, Person

CLOCK_DIFFERENCE_SECONDS = 2.0


def estimate_sent_at() -> datetime:
    """Returns the time to use for an action if its platform does not report when it was sent. The time is slightly in
    the past, because clocks differ and no message sent after the action may count as older than it."""
    return datetime.now(UTC) - timedelta(seconds=CLOCK_DIFFERENCE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorContext:
    """Facts about the acting user that the platform reports with an action.

    `is_known` is False if the platform did not report them; with `is_withheld`, it refuses to, also later. `groups` are
    the IDs of the user's roles or user groups, or None if it did not list them. `home_id` is the user's own workspace
    if it differs from the action's. `has_left`: the user is no longer a member. `organisation_id` is the organisation
    of the latter, if any. `expects_answer` is true for clicks and slash commands, which the platform shows as failed if
    they get no response. `app_ids` are the ids of the app that wrote the message.
    """

    is_known: bool = True
    is_withheld: bool = False
    is_direct: bool = False
    is_guest: bool = False
    has_left: bool = False
    home_id: str = ""
    organisation_id: str = ""
    groups: frozenset[str] | None = frozenset()
    expects_answer: bool = False
    app_ids: frozenset[str] = frozenset()


MEMBER = ActorContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a user did on a chat platform.

    `dedupe_key` identifies the event, so a redelivered event has the same key. `sent_at` is by the platform's clock, so
    that actions compare with messages and with each other. It is None if the platform does not report it; such an
    action arrives live or not at all. `message_ref` is the platform's id of the message that was written, changed or
    reacted to. `is_addressed` is false for words in a thread that may be meant for other users. `is_missed` is true if
    the action was read from the history of the chat."""

    address: Address
    dedupe_key: str
    person: Person
    sent_at: datetime | None
    message_ref: str = ""
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    is_addressed: bool = True
    is_missed: bool = False
    actor: ActorContext = MEMBER

    @property
    def acted_at(self) -> datetime:
        """When the action was sent. If the platform does not report that, a time slightly in the past."""
        return self.sent_at or estimate_sent_at()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage(Action):
    """A user wrote a message.

    `text` omits the mention of the agent and shows mentions of users as @name. `agent_id` is the agent that the message
    requests by name. `is_addressed` is true if the message mentions the agent, replies to it, comes from a slash
    command, or is a direct message. `is_by_name` is true if the message calls the agent by its name, which counts in
    the agent's own threads. `is_to_others` is true if the message begins with a mention of another user or replies to
    another user's message. `reply_ref` is the message that it replies to. `edited_at` is when this version of the text
    was written, if the message was edited. With `is_about_message`, `message_ref` is a user's message that the request
    is about. `is_automatic` is true if no user has written the message just now, as with a scheduled task: it starts
    work, but answers and approves nothing. `prepare` is awaited after a new run is stored and before a worker begins
    it."""

    kind: ClassVar[InputKind] = "message"
    sent_at: datetime
    is_about_message: bool = False
    is_by_name: bool = False
    is_to_others: bool = False
    reply_ref: str = ""
    agent_id: str | None = None
    edited_at: datetime | None = None
    is_automatic: bool = False
    prepare: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited(Action):
    """A user edited a message at `sent_at`. `dedupe_key` identifies this edit, because a message can be edited several
    times."""

    kind: ClassVar[InputKind] = "edit"
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeleted(Action):
    kind: ClassVar[InputKind] = "delete"
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAnswered(Action):
    """A user answered a question by a click, a form or a reaction. `text` is what they typed. A click identifies the
    option by its index, because labels may be shortened. A reaction identifies the question by `ask_ref`, the message
    with the question."""

    kind: ClassVar[InputKind] = "answer"
    sent_at: datetime
    ask_id: str = ""
    ask_ref: str = ""
    option: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Action):
    """A user reacted to a request with a cross, pressed the platform's own stop button, or told the agent to stop. A
    stop in words has no `message_ref`, and does not stop runs that were requested after it was sent."""

    kind: ClassVar[InputKind] = "answer"
    sent_at: datetime | None = None
    text: str = "Stop"


StoredAction = IncomingMessage | MessageEdited | MessageDeleted | AskAnswered | StopRequested
