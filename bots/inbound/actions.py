"""User actions in chat, parsed from platform payloads, and pure functions that decide how to handle them."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, assert_never

from bots.inbound.commands.short_replies import read_yes_no_stop
from core.agents.definition import AgentDefinition
from core.agents.roster import unknown_agent_message
from core.domain.actions import (
    Action,
    AskAnswered,
    IncomingMessage,
    MessageDeleted,
    MessageEdited,
    StopRequested,
    StoredAction,
)
from core.domain.approval import ADMINS_APPROVE, APPROVE_ONCE, DENY, is_for_admins, parse_choice
from core.domain.errors import StorageUnavailable
from core.domain.threads import (
    Accept,
    Address,
    Ask,
    Decision,
    FollowMode,
    Hold,
    Ignore,
    Overhear,
    Person,
    Run,
    StopRun,
    ThreadSnapshot,
)

MISSED_SECONDS_MAX = 3 * 86_400
"""Messages older than this that were sent while the bot was offline are skipped, because nobody expects a reply any
more."""
LATE_SECONDS = 3_600
DISCORD_EPOCH_SECONDS = 1_420_070_400.0
READING_SECONDS = 1.5
"""A yes that is sent sooner than this after a card was posted is not an answer to it, because nobody can have read the
card yet."""
_AGENT_PREFIX = re.compile(r"agent:(\S{1,64})(?:\s+|$)", re.IGNORECASE)
SHORT_HELP = (
    "Hello! Tell me what you need, for example “sum up this thread”; in a channel, mention me with it. Attach files if"
    " they help. `help` lists what else you can type."
)
ANOTHER_AGENT_RUNNING = "Another agent is at work here: ask for this one when that is done, or stop it first."


RunButton = Literal["stop", "retry", "continue", "details"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunButtonPressed(Action):
    """A user pressed a button of a status message."""

    sent_at: datetime | None = None
    run_id: str
    action: RunButton


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCalled(Action):
    """A user called a slash command, or wrote a command. Only `knowledge` accepts files. `message` is the written
    message, or None for a slash command or a button."""

    sent_at: datetime | None = None
    name: str
    argument: str
    message: IncomingMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackGiven(Action):
    """A user rated the answer of a run as good or bad. `text` is the reason, which is sent later in a second action."""

    sent_at: datetime | None = None
    run_id: str
    is_good: bool


UserAction = StoredAction | RunButtonPressed | CommandCalled | FeedbackGiven


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The immediate response to a user action.

    `notice` is Markdown to show to the user, or empty. `commands` maps the labels of buttons below it to the commands
    that they run."""

    notice: str = ""
    commands: Mapping[str, str] = field(default_factory=dict[str, str])
    is_private: bool = True
    run_id: str | None = None
    is_ignored: bool = False


Receive = Callable[[UserAction], Awaitable[Outcome]]
Admits = Callable[[UserAction], Awaitable[bool]]
"""Returns whether the user of an action has access."""
NOT_STORED = "This could not be stored just now. Please try again in a minute."
"""Shown to the user if the database is unavailable and the platform does not redeliver the event."""
INTERNAL_ERROR = "Something broke on our side. Please try again."
UNKNOWN_CONTROL = "That does not work any more. Please write to me what you need."
"""Shown to a user of a control, form or command that this version of the program does not know."""
ANSWERED_LONG_AGO = "I was away when you answered this, so I have done nothing yet. Please answer it again."
CALLED_LONG_AGO = "I was away when you wrote this command, so I have not carried it out. Please send it again."
NOT_INSTALLED = "I am not installed in this workspace any more. Ask an admin to add me again."


def describe_failure(error: Exception) -> str:
    """Returns the notice for a user whose action raised the error."""
    return NOT_STORED if isinstance(error, StorageUnavailable) else INTERNAL_ERROR


def time_from_message_id(address: Address, message_ref: str) -> datetime | None:
    """Returns when the message was posted, by the platform's clock. Returns None if the id does not contain a time."""
    try:
        match address.platform:
            case "slack":
                return datetime.fromtimestamp(float(message_ref), UTC)
            case "discord":
                seconds = DISCORD_EPOCH_SECONDS + (int(message_ref) >> 22) / 1000
                return datetime.fromtimestamp(seconds, UTC)
            case "api":
                return None
    except (ValueError, OverflowError, OSError):
        return None


def conversation_link(address: Address) -> str:
    """Returns the web address of a chat thread."""
    if address.platform == "discord":
        return f"https://discord.com/channels/{address.workspace_id}/{address.thread_key}"
    channel = f"{address.workspace_id}/{address.channel_id}"
    return f"https://app.slack.com/client/{channel}/thread/{address.channel_id}-{address.thread_key}"


def was_shown_before(ask: Ask, address: Address, sent_at: datetime) -> bool:
    """Whether users could have read the open question before `sent_at`.

    Always true for the HTTP API, whose clients answer after they have read the question."""
    if address.platform == "api":
        return True
    shown_at = time_from_message_id(address, ask.message_ref)
    if shown_at is None:
        return False
    reading = timedelta(seconds=READING_SECONDS if ask.kind == "approval" else 0)
    return sent_at >= shown_at + reading


def is_late_action(action: Action, now: datetime) -> bool:
    """Whether the action was missed and is so old that its author may no longer want it.

    A live action is never late, however the clocks of this machine and the platform differ."""
    return action.is_missed and (now - action.acted_at).total_seconds() > LATE_SECONDS


def stop_request_from(action: Action) -> StopRequested:
    """Returns a stop request with the sender and time of an action whose text means "stop"."""
    return StopRequested(
        address=action.address,
        dedupe_key=action.dedupe_key,
        person=action.person,
        sent_at=action.sent_at,
        is_addressed=action.is_addressed,
        actor=action.actor,
    )


def split_agent_prefix(text: str) -> tuple[str | None, str]:
    """Splits a leading `agent:<name>` from a message. Returns the name, or None, and the remaining text."""
    named = _AGENT_PREFIX.match(text)
    return (named[1].lower(), text[named.end() :]) if named else (None, text)


NO_ANSWER = Ignore(reason="no answer")


def decide_action(
    action: StoredAction,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition] | None = None,
    *,
    follow_mode: FollowMode = "default",
    is_admin: bool = False,
    is_late: bool = False,
    may_hold: bool = False,
    must_answer: bool = False,
) -> Decision:
    """Returns how to handle an action. The options are those of `decide_message`. With `must_answer`, returns NO_ANSWER
    for a message that does not answer an open question."""
    match action:
        case IncomingMessage():
            decision = decide_message(
                action, snapshot, agents, follow_mode=follow_mode, is_admin=is_admin, is_late=is_late, may_hold=may_hold
            )
            is_answer = isinstance(decision, Hold) or (isinstance(decision, Accept) and decision.ask_id)
            is_refused = isinstance(decision, Ignore) and decision.notice
            return decision if is_answer or is_refused or not must_answer else NO_ANSWER
        case MessageEdited():
            return decide_edit(action, snapshot)
        case MessageDeleted():
            return decide_delete(action, snapshot)
        case AskAnswered():
            return decide_answer(action, snapshot, is_admin=is_admin)
        case StopRequested():
            return decide_stop(action, snapshot)
        case _:
            assert_never(action)


def decide_message(
    message: IncomingMessage,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition] | None = None,
    *,
    follow_mode: FollowMode = "default",
    is_admin: bool = False,
    is_late: bool = False,
    may_hold: bool = False,
) -> Decision:
    """Returns how to handle a message. Outside the agent's own threads, messages must address the agent.

    `agents` are the agents that a message can request by name. `follow_mode` applies unless users have chosen another
    mode. `is_admin` is whether an admin wrote the message. A message that `is_late` answers no question and starts no
    run. With `may_hold`, returns Hold for a message that arrives while a question is being posted."""
    ask = snapshot.open_ask if snapshot else None
    is_being_posted = ask is not None and not ask.message_ref and message.address.platform != "api"
    if may_hold and is_being_posted:
        return Hold()
    decision = _decide_message(message, snapshot, agents or {}, follow_mode, is_admin=is_admin)
    if not is_late or not isinstance(decision, Accept):
        return decision
    if decision.ask_id and ask is not None and ask.kind == "approval":
        return Ignore(reason="answered long ago", notice=ANSWERED_LONG_AGO)
    if ask is not None and not was_shown_before(ask, message.address, message.sent_at):
        return Overhear(reason="late, and something is asked already")
    return replace(decision, ask_id=None, answer=None, is_steering=True, is_late=True)


def _decide_message(
    message: IncomingMessage,
    snapshot: ThreadSnapshot | None,
    agents: Mapping[str, AgentDefinition],
    follow_mode: FollowMode,
    *,
    is_admin: bool,
) -> Decision:
    if snapshot is None and not message.is_addressed:
        return Ignore(reason="not addressed")
    if not message.text.strip() and not message.files:
        return Ignore(reason="empty", notice=SHORT_HELP if message.is_addressed else "")
    if message.agent_id is not None:
        if message.agent_id not in agents:
            return Ignore(reason="no such agent", notice=unknown_agent_message(message.agent_id, agents))
        active = snapshot.active_run if snapshot else None
        if active is not None and active.agent_id != message.agent_id:
            return Ignore(reason="another agent is at work", notice=ANOTHER_AGENT_RUNNING)
    if snapshot is None:
        return Accept()
    until = snapshot.last_run.stopped_until if snapshot.last_run else None
    written_at = message.edited_at or message.sent_at
    if until is not None and message.address.platform != "api" and written_at <= until:
        return Overhear(reason="older than a stop")
    if message.actor.app_ids or message.is_automatic:  # such messages answer and approve nothing
        return Accept(is_steering=True)
    message = replace(message, is_addressed=message.is_addressed or message.is_by_name)
    reply = _decide_reply(message, snapshot)
    if reply and not is_admin and snapshot.open_ask and is_for_admins(snapshot.open_ask):
        return Ignore(reason="not an admin", notice=ADMINS_APPROVE)
    return reply or _decide_request(message, snapshot, snapshot.follow_mode or follow_mode)


def _decide_reply(message: IncomingMessage, snapshot: ThreadSnapshot) -> Accept | None:
    """Returns the decision if the message answers the open question, else None.

    The next message of the person who was asked is the answer. So is a message from anyone to the agent, unless it is a
    question or addressed to someone else. While users are talking to each other, only messages to the agent count."""
    ask = snapshot.open_ask
    if ask is None or message.is_to_others:
        return None
    if not was_shown_before(ask, message.address, message.sent_at):
        return None
    is_elsewhere = message.reply_ref not in ("", ask.message_ref)
    if ask.kind == "approval":
        return None if is_elsewhere else _decide_approval(message, ask, snapshot)
    is_asked = _is_asked(message.person, ask)
    has_turn = is_asked and not _are_talking(snapshot, ask)
    is_answer = has_turn or (message.is_addressed and (is_asked or not is_elsewhere))
    if not is_answer or message.text.rstrip().endswith(("?", "？")):
        return None
    words = message.text.strip().casefold()
    option = next((one for one in ask.options if one.casefold() == words), None)
    return Accept(ask_id=ask.ask_id, answer=option)


def _is_asked(person: Person, ask: Ask) -> bool:
    """Whether the open question is addressed to this person, because they requested the run that asked it."""
    return ask.requester is not None and ask.requester.person_id == person.person_id


def _are_talking(snapshot: ThreadSnapshot, ask: Ask) -> bool:
    """Whether users have talked to each other after the question was posted and after the newest message to the
    agent."""
    shown_at = time_from_message_id(snapshot.thread.address, ask.message_ref)
    heard_at, turns = snapshot.talk.heard_at, (shown_at, snapshot.talk.requested_at)
    return heard_at is not None and all(one is None or heard_at > one for one in turns)


def _decide_approval(message: IncomingMessage, ask: Ask, snapshot: ThreadSnapshot) -> Accept | None:
    """Returns the decision if the message is only a yes, a no or the label of a button, else None. A message with files
    does not count, nor one that is not addressed to the agent while users are talking to each other."""
    if message.files or (not message.is_addressed and _are_talking(snapshot, ask)):
        return None
    if parse_choice(message.text) is not None:
        return Accept(ask_id=ask.ask_id)
    word = read_yes_no_stop(message.text)
    if word not in ("yes", "no"):
        return None
    return Accept(ask_id=ask.ask_id, answer=APPROVE_ONCE if word == "yes" else DENY)


def _decide_request(message: IncomingMessage, snapshot: ThreadSnapshot, follow_mode: FollowMode) -> Decision:
    """Returns how to handle a message that answers no question.

    Without a mention, a message is for the agent if its author is alone with the agent. If the agent follows the
    thread, the model decides whether the message is for it, and may stay silent."""
    if message.is_addressed:
        return Accept(is_steering=True, follows_again=follow_mode == "quiet")
    if message.is_to_others:
        return Overhear(reason="to another person")
    if follow_mode in ("mention", "quiet"):
        return Overhear(reason=f"follow mode {follow_mode}")
    if message.agent_id is not None:
        return Accept(is_steering=True)
    if snapshot.talk.is_alone(message.person):
        return Accept(is_steering=True, attention="clear")
    if follow_mode == "follow":
        return Accept(is_steering=True, attention="unsure")
    return Overhear(reason="among several people")


def decide_edit(edit: MessageEdited, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle an edit. Edits are passed to an active run and otherwise ignored. An edit to "stop" stops
    the run."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way to amend")
    if read_yes_no_stop(edit.text) != "stop":
        return Accept()
    decision = decide_stop(stop_request_from(edit), snapshot)
    return decision if isinstance(decision, StopRun) else Accept()


def decide_delete(deletion: MessageDeleted, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle a deletion.

    If the message that started a run is deleted, the run stops, unless the requester asked about another person's
    message. Deleting a later message withdraws it, unless the run has already read it."""
    if snapshot is None or snapshot.active_run is None:
        return Ignore(reason="nothing under way")
    requester, author = snapshot.active_run.requester, deletion.person.person_id
    is_foreign = author and requester and not requester.is_app and requester.person_id != author
    if not is_foreign and snapshot.active_run.request_ref == deletion.message_ref:
        return StopRun(until=deletion.sent_at)
    return Accept()


def decide_stop(stop: StopRequested, snapshot: ThreadSnapshot | None) -> Decision:
    """Returns how to handle a stop request.

    A reaction counts only on the message that started the active run, and only if the run's requester adds it. Words
    count if they come from the requester or are addressed to the agent. If no run is active and an open question asks
    this person, "stop" is the answer to the question."""
    if stop.actor.app_ids:
        return Ignore(reason="an app stops nothing")
    ask, active = (snapshot.open_ask, snapshot.active_run) if snapshot else (None, None)
    is_seen = ask and (not stop.sent_at or was_shown_before(ask, stop.address, stop.sent_at))
    is_answer = is_seen and not (active or stop.message_ref)
    if snapshot and ask and is_answer and _is_asked(stop.person, ask):
        is_meant = stop.is_addressed or not _are_talking(snapshot, ask)
        return Accept(ask_id=ask.ask_id) if is_meant else Ignore(reason="talk among people")
    if active is None or stop.message_ref not in ("", active.request_ref):
        return Ignore(reason="nothing under way, or not its request")
    is_own = active.requester is not None and active.requester.person_id == stop.person.person_id
    if not (is_own or (stop.is_addressed and not stop.message_ref)):
        return Ignore(reason="not the requester's, nor for the agent")
    if not stop.message_ref and is_requested_after(active, stop.sent_at):
        return Ignore(reason="older than what is under way")
    return StopRun(until=stop.sent_at)


def is_requested_after(run: Run, sent_at: datetime | None) -> bool:
    """Whether the run was requested after `sent_at`, so that the action cannot be about it. A live action, whose time
    is None, is about the current run."""
    return sent_at is not None and sent_at < (run.requested_at or run.created_at)


def decide_answer(answer: AskAnswered, snapshot: ThreadSnapshot | None, *, is_admin: bool = False) -> Decision:
    """Returns how to handle an answer to a question. Only the first answer to an open question is accepted.

    `is_admin` is whether an admin gave the answer."""
    if answer.actor.app_ids:
        return Ignore(reason="an app answers nothing")
    ask = snapshot.open_ask if snapshot else None
    if answer.ask_ref:
        if ask is None or ask.kind != "approval" or ask.message_ref != answer.ask_ref:
            return Ignore(reason="not an open question")
    elif ask is None or ask.ask_id != answer.ask_id:
        return Ignore(reason="not open", notice="This question is no longer open.")
    if is_for_admins(ask) and not is_admin:
        return Ignore(reason="not an admin", notice=ADMINS_APPROVE)
    if answer.option is None:
        return Accept(ask_id=ask.ask_id)
    if answer.option >= len(ask.choices):
        return Ignore(reason="no such option", notice=UNKNOWN_CONTROL)
    return Accept(ask_id=ask.ask_id, answer=ask.choices[answer.option])
