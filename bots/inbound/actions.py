"""What people do in chat, parsed from platform payloads, and the pure rules that decide how to handle it."""

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
"""Matches the whole message, because a sentence that only begins with the word is a request."""
ADMIN_COMMAND = re.compile(
    r"(?P<name>pair|unpair)\s+(?P<argument>\S{1,64})|(?P<audit>audit)\s+(?P<count>\d{1,3})",
    re.IGNORECASE,
)
"""Commands of admins that take an argument; like the plan command, the whole message."""

ANOTHER_AGENT_RUNNING = (
    "Another agent is at work here: ask for this one when that is done, or stop it first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorContext:
    """What the platform says about the acting person at that moment; `is_known` is False if it did not say.

    `groups` are the ids of their roles or user groups, or None if the platform did not list them. `home_id` is their
    own workspace if that is another one. `organisation_id` belongs to the workspace they act in, if it has one.
    `expects_answer` marks clicks and slash commands, which the platform shows as failed if they get no answer.
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
    """A person wrote a message. In `text` the mention of the agent is removed, and mentions of people are @name.

    `agent_id` is the agent that the message asks for by name. `is_addressed` says that the agent was mentioned or
    called by a command, or that the message is direct.
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
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited:
    """`message_ref` is the edited message; the dedupe key identifies this edit."""

    address: Address
    dedupe_key: str
    message_ref: str
    author: Person
    text: str
    sent_at: datetime
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeleted:
    address: Address
    dedupe_key: str
    message_ref: str
    author: Person
    sent_at: datetime
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAnswered:
    """A person answered an ask with a button, select or form. `value` is the option's text or the typed text."""

    address: Address
    dedupe_key: str
    ask_id: str
    value: str
    person: Person
    sent_at: datetime
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class RunButtonPressed:
    """A person pressed Stop, Retry or Continue on a status message."""

    address: Address
    dedupe_key: str
    run_id: str
    action: Literal["stop", "retry", "continue"]
    person: Person
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person reacted to the request (`message_ref`) with a cross, or used the platform's own stop button
    (`message_ref` is empty)."""

    address: Address
    dedupe_key: str
    message_ref: str
    person: Person
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCalled:
    """A person used a slash command, or a command word after a mention. Only `knowledge` accepts files."""

    address: Address
    dedupe_key: str
    name: CommandName
    argument: str
    person: Person
    files: tuple[IncomingFile, ...] = ()
    actor: ActorContext = MEMBER


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
    """The immediate answer to a person. `notice` is Markdown; if it is empty, nothing is shown."""

    notice: str = ""
    is_private: bool = True
    run_id: str | None = None
    is_ignored: bool = False


NOT_STORED = "This could not be stored just now. Please try again in a minute."
"""Shown if the database is unavailable and the platform does not redeliver the event."""


def acting_person(action: UserAction) -> Person:
    if isinstance(action, IncomingMessage | MessageEdited | MessageDeleted):
        return action.author
    return action.person


def parse_admin_command(text: str) -> tuple[CommandName, str] | None:
    """Returns an admin command and its argument, or None if the text is none."""
    found = ADMIN_COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    if found["audit"]:
        return "audit", found["count"]
    return cast(CommandName, found["name"].lower()), found["argument"]


def split_agent_prefix(text: str) -> tuple[str | None, str]:
    """Returns the name in a leading `agent:<name>`, or None, and the rest of the text."""
    named = _AGENT_PREFIX.match(text)
    return (named[1].lower(), text[named.end() :]) if named else (None, text)


def decide_message(
    message: IncomingMessage,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition] | None = None,
) -> Decision:
    """In the agent's own threads no mention is needed; elsewhere the agent must be addressed.

    `agents` are the agents that can be asked for by name.
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
    """An edit amends an active run; later edits are ignored."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way to amend")
    return Accept()


def decide_delete(deletion: MessageDeleted, snapshot: ThreadSnapshot | None) -> Decision:
    """Deleting the request stops its run. Deleting a later message withdraws it unless the run has read it."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    if snapshot.active_run.request_ref == deletion.message_ref:
        return StopRun()
    return Accept()


def decide_stop(stop: StopRequested, snapshot: ThreadSnapshot | None) -> Decision:
    """A cross counts only on the active run's request."""
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
