"""User actions in chat, parsed from platform payloads, and pure functions that decide how to handle them."""

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
"""Must match the whole message, because a sentence that begins with "plan" may be a request to the agent."""
ADMIN_COMMAND = re.compile(
    r"(?P<name>pair|unpair)\s+(?P<argument>\S{1,64})|(?P<audit>audit)\s+(?P<count>\d{1,3})",
    re.IGNORECASE,
)
"""Admin commands with an argument. Must match the whole message."""

ANOTHER_AGENT_RUNNING = (
    "Another agent is at work here: ask for this one when that is done, or stop it first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorContext:
    """Facts about the acting user that the platform reports with an action.

    `is_known` is False if the platform did not report them. `groups` are the IDs of the user's roles or user groups,
    or None if the platform did not list them. `home_id` is the user's own workspace if it differs from the workspace
    of the action. `organisation_id` is the organisation of the action's workspace, if any. `expects_answer` is true for
    clicks and slash commands, which the platform shows as failed if they get no response.
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
    """A user wrote a message.

    `text` omits the mention of the agent and shows mentions of users as @name. `agent_id` is the agent that the
    message requests by name. `is_addressed` is true if the message mentions the agent, comes from a slash command, or
    is a direct message.
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
    """A user edited a message. `message_ref` identifies the message, `dedupe_key` this edit of it."""

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
    """A user answered a question with a button, select or form. `value` is the option's text or the typed text."""

    address: Address
    dedupe_key: str
    ask_id: str
    value: str
    person: Person
    sent_at: datetime
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class RunButtonPressed:
    """A user pressed Stop, Retry or Continue on a status message."""

    address: Address
    dedupe_key: str
    run_id: str
    action: Literal["stop", "retry", "continue"]
    person: Person
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A user reacted to a request with a cross, or used the platform's own stop button.

    `message_ref` is the message with the reaction. It is empty for the stop button.
    """

    address: Address
    dedupe_key: str
    message_ref: str
    person: Person
    actor: ActorContext = MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCalled:
    """A user called a slash command, or wrote a command after a mention. Only `knowledge` accepts files."""

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
    """The immediate response to a user action. `notice` is Markdown to show to the user, or empty."""

    notice: str = ""
    is_private: bool = True
    run_id: str | None = None
    is_ignored: bool = False


NOT_STORED = "This could not be stored just now. Please try again in a minute."
"""Shown to the user if the database is unavailable and the platform does not redeliver the event."""


def acting_person(action: UserAction) -> Person:
    if isinstance(action, IncomingMessage | MessageEdited | MessageDeleted):
        return action.author
    return action.person


def parse_admin_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the admin command in `text` and its argument, or None if `text` is not an admin command."""
    found = ADMIN_COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    if found["audit"]:
        return "audit", found["count"]
    return cast(CommandName, found["name"].lower()), found["argument"]


def split_agent_prefix(text: str) -> tuple[str | None, str]:
    """Splits a leading `agent:<name>` from a message. Returns the name, or None, and the remaining text."""
    named = _AGENT_PREFIX.match(text)
    return (named[1].lower(), text[named.end() :]) if named else (None, text)


def decide_message(
    message: IncomingMessage,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition] | None = None,
) -> Decision:
    """Returns how to handle a message. Outside the agent's own threads, messages must address the agent.

    `agents` are the agents that a message can request by name.
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
    """Returns how to handle an edit. Edits are passed to an active run and otherwise ignored."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way to amend")
    return Accept()


def decide_delete(deletion: MessageDeleted, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle a deletion.

    Deleting the message that started a run stops the run. Deleting a later message withdraws it, unless the run has
    already read it.
    """
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    if snapshot.active_run.request_ref == deletion.message_ref:
        return StopRun()
    return Accept()


def decide_stop(stop: StopRequested, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle a stop request. A reaction counts only on the message that started the active run."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    if stop.message_ref and snapshot.active_run.request_ref != stop.message_ref:
        return Ignore(reason="not the request of the active run")
    return StopRun()


def decide_answer(answer: AskAnswered, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle an answer to a question. Only the first answer to an open question is accepted."""
    if snapshot is None or snapshot.open_ask is None or snapshot.open_ask.ask_id != answer.ask_id:
        return Ignore(reason="not open", notice="This question is no longer open.")
    return Accept(ask_id=answer.ask_id)
