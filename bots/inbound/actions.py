"""What people do on a platform, parsed; and the pure rules that say what is made of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from core.agents.definition import AgentDefinition
from core.agents.roster import unknown_agent_message
from core.domain.threads import (
    Accept,
    Address,
    Decision,
    Ignore,
    IncomingFile,
    Person,
    StopRun,
    ThreadSnapshot,
)

CommandName = Literal[
    "stop",
    "status",
    "files",
    "usage",
    "new",
    "forget",
    "help",
    "knowledge",
    "plan",
    "use",
    "pair",
    "unpair",
    "who",
    "audit",
]
_AGENT_PREFIX = re.compile(r"agent:(\S{1,64})(?:\s+|$)", re.IGNORECASE)
PLAN_COMMAND = re.compile(
    r"plan(?:\s+(show|stop|add\s+\S.*|(?:remove|skip)\s+\d{1,3}))?", re.IGNORECASE
)
"""The command as a whole message: a sentence that only begins with the word is a request."""
ADMIN_COMMAND = re.compile(
    r"(?P<name>pair|unpair)\s+(?P<argument>\S{1,64})|(?P<audit>audit)\s+(?P<count>\d{1,3})",
    re.IGNORECASE,
)
"""Words of admins that something follows; as with plans, the whole message."""

ANOTHER_AGENT_RUNNING = (
    "Another agent is at work here: ask for this one when that is done, or stop it first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorContext:
    """What the platform says of whoever acts, at that moment. `is_known`: False where it did not say it.

    `groups`: ids of their roles or user groups; None where it did not say them. `home_id`: their own workspace, where
    that is another one. `organisation_id`: the organisation of the workspace that they act in, where it has one.
    `expects_answer`: a click or a slash command, which the platform shows as failed where nothing is said.
    """

    is_known: bool = True
    is_direct: bool = False
    is_guest: bool = False
    home_id: str = ""
    organisation_id: str = ""
    groups: frozenset[str] | None = frozenset()
    expects_answer: bool = False


MEMBER = ActorContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A person wrote. `text` has the mention of the agent removed; people's mentions are written as @name.
    `agent_id`: the agent that is asked for by name, for this request.

    `is_addressed`: the agent was mentioned or called by a command, or the message is direct.
    """

    address: Address
    dedupe_key: str
    message_ref: str
    author: Person
    text: str
    sent_at: datetime
    is_addressed: bool
    files: tuple[IncomingFile, ...] = ()
    agent_id: str | None = None
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited:
    """`message_ref` is the message that was edited; the key names this edit of it."""

    address: Address
    dedupe_key: str
    message_ref: str
    author: Person
    text: str
    sent_at: datetime
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeleted:
    address: Address
    dedupe_key: str
    message_ref: str
    author: Person
    sent_at: datetime
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAnswered:
    """A button, select or form answered the ask. `value` is the chosen option's text, or what was typed."""

    address: Address
    dedupe_key: str
    ask_id: str
    value: str
    person: Person
    sent_at: datetime
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class RunButtonPressed:
    """Stop, Retry or Continue on a status message."""

    address: Address
    dedupe_key: str
    run_id: str
    action: Literal["stop", "retry", "continue"]
    person: Person
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A cross on the request (`message_ref`), or the platform's own stop sign (`message_ref` empty)."""

    address: Address
    dedupe_key: str
    message_ref: str
    person: Person
    standing: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCalled:
    """A slash command, or the word after a mention. `argument` is what follows it; only `knowledge` takes files."""

    address: Address
    dedupe_key: str
    name: CommandName
    argument: str
    person: Person
    files: tuple[IncomingFile, ...] = ()
    standing: ActorContext = MEMBER


UserAction = (
    IncomingMessage
    | MessageEdited
    | MessageDeleted
    | AskAnswered
    | RunButtonPressed
    | StopRequested
    | CommandCalled
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the platform tells the person at once. `notice` is Markdown; empty: silence."""

    notice: str = ""
    is_private: bool = True
    run_id: str | None = None
    is_ignored: bool = False


NOT_STORED = "This could not be stored just now. Please try again in a minute."
"""To whoever did something that the platform does not tell again, while the database is away."""


def acting_person(inbound: UserAction) -> Person:
    """Whoever did it."""
    if isinstance(inbound, IncomingMessage | MessageEdited | MessageDeleted):
        return inbound.author
    return inbound.person


def parse_admin_command(text: str) -> tuple[CommandName, str] | None:
    """A word of admins and what follows it, where the whole text is one."""
    found = ADMIN_COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    if found["audit"]:
        return "audit", found["count"]
    return cast(CommandName, found["name"].lower()), found["argument"]


def split_agent_prefix(text: str) -> tuple[str | None, str]:
    """Who is asked for by a leading `agent:<name>`, and the text without that."""
    named = _AGENT_PREFIX.match(text)
    return (named[1].lower(), text[named.end() :]) if named else (None, text)


def decide_message(
    message: IncomingMessage,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition] | None = None,
) -> Decision:
    """A thread that the agent is in needs no mention; elsewhere the agent must be addressed.

    `agents` are those that can be asked for by name.
    """
    if snapshot is None and not message.is_addressed:
        return Ignore(reason="not addressed")
    if not message.text.strip() and not message.files:
        if snapshot is None or message.is_addressed:
            return Ignore(
                reason="empty", notice="Hello! Tell me what to do, and attach files if they help."
            )
        return Ignore(reason="empty")
    if message.agent_id is not None:
        if message.agent_id not in (agents or {}):
            return Ignore(
                reason="no such agent", notice=unknown_agent_message(message.agent_id, agents or {})
            )
        active = snapshot.active_run if snapshot else None
        if active is not None and active.agent_id != message.agent_id:
            return Ignore(reason="another agent is at work", notice=ANOTHER_AGENT_RUNNING)
    open_ask = snapshot.open_ask if snapshot else None
    return Accept(ask_id=open_ask.ask_id if open_ask else None)


def decide_edit(edit: MessageEdited, snapshot: ThreadSnapshot | None) -> Decision:
    """An edit amends work under way; afterwards it is history."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way to amend")
    return Accept()


def decide_delete(deletion: MessageDeleted, snapshot: ThreadSnapshot | None) -> Decision:
    """Deleting the request cancels its run; deleting a later message withdraws it if it was not taken up yet."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    if snapshot.active_run.request_ref == deletion.message_ref:
        return StopRun()
    return Accept()


def decide_stop(stop: StopRequested, snapshot: ThreadSnapshot | None) -> Decision:
    """A cross counts on the request of the active run only."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    if stop.message_ref and snapshot.active_run.request_ref != stop.message_ref:
        return Ignore(reason="not the request of the active run")
    return StopRun()


def decide_answer(answer: AskAnswered, snapshot: ThreadSnapshot | None) -> Decision:
    """The first answer wins."""
    if snapshot is None or snapshot.open_ask is None or snapshot.open_ask.ask_id != answer.ask_id:
        return Ignore(reason="not open", notice="This question is no longer open.")
    return Accept(ask_id=answer.ask_id)
