"""The admin commands `pair`, `unpair`, `who`, `mcp` and `audit`, and the text format of audit entries."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC

from bots.inbound.access import AccessPolicy, hash_pairing_code, pairing_workspace_id
from bots.inbound.actions import CommandCalled, Outcome
from core.domain.audit import AuditAction, AuditEntry, AuditLog
from core.domain.outside_text import escape_name, single_line
from core.domain.pairing import Pairings
from core.domain.threads import Person
from core.stores import Feedback

BuildConsentLink = Callable[[CommandCalled], Outcome]
"""Returns a link on which an admin consents to the use of a tool server."""
NO_SERVERS = "There are no tool servers here."
ENTRIES_SHOWN = 10
ENTRIES_SHOWN_MAX = 30
PEOPLE_SHOWN_MAX = 50
REASON_CHARACTERS_MAX = 1000
ADMINS_ONLY = "Only admins of this bot can do that."
NOT_IN_PUBLIC = "Everyone here would see the answer. Ask me with `/agent {name}`, or in a direct message."
_WORDS: dict[AuditAction, str] = {
    "run_requested": "asked for a run",
    "question_answered": "answered a question",
    "approval_given": "approved",
    "approval_denied": "denied",
    "stop_requested": "asked for a stop",
    "conversation_renewed": "began a new conversation",
    "conversation_forgotten": "had a conversation forgotten",
    "agent_chosen": "chose the agent",
    "agent_changed": "changed the agent",
    "knowledge_changed": "changed what is known",
    "plan_changed": "changed the plan",
    "budget_changed": "changed the budget",
    "schedule_changed": "changed a schedule",
    "paired": "paired",
    "unpaired": "unpaired",
    "workspace_joined": "installed the bot",
    "workspace_left": "removed the bot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDeps:
    """Dependencies of the admin commands."""

    policy: AccessPolicy
    pairings: Pairings
    audit_log: AuditLog
    connect_tools: BuildConsentLink | None = None


def is_answer_public(called: CommandCalled) -> bool:
    """Whether everyone in the channel can see the answer.

    This is the case for commands in Discord channel messages. On Slack, only the caller sees the answer."""
    is_private = called.actor.expects_answer or called.actor.is_direct
    return called.address.platform == "discord" and not is_private


async def answer_pair(called: CommandCalled, deps: AdminDeps) -> Outcome:
    """Answers `pair`."""
    address = called.address
    person = await deps.pairings.pair_person(
        hash_pairing_code(called.argument), workspace_id=pairing_workspace_id(address), at=address, by=called.person
    )
    if person is None:
        return Outcome(notice="There is no such code, or it has expired. Check it, or ask the person to write again.")
    return Outcome(notice=f"{_format_person(person)} may write to me in direct messages now.")


async def answer_unpair(called: CommandCalled, deps: AdminDeps) -> Outcome:
    """Answers `unpair`."""
    address = called.address
    person = await deps.pairings.unpair_person(
        called.argument.strip("@`"), workspace_id=pairing_workspace_id(address), at=address, by=called.person
    )
    if person is None:
        return Outcome(notice="No one is paired under that name or id; `who` lists everyone who is.")
    return Outcome(notice=f"{_format_person(person)} may not write to me in direct messages any more.")


async def answer_who(called: CommandCalled, deps: AdminDeps) -> Outcome:
    """Answers `who` with the allowlists and the paired users of this workspace."""
    address, policy = called.address, deps.policy
    lists = {
        "Workspaces": policy.workspaces,
        "Channels": policy.channels,
        "People": policy.users,
        "Roles and groups": policy.roles,
        "Admins": policy.admins,
    }
    lines = [f"- {title}: {', '.join(ids)}" for title, ids in lists.items() if ids]
    lines.append(f"- Guests: {'yes' if policy.guests else 'no'}")
    lines.append(f"- Members of other workspaces: {'yes' if policy.strangers else 'no'}")
    paired = await deps.pairings.paired_people(address.platform, pairing_workspace_id(address))
    names = [_format_person(person) for person in paired[:PEOPLE_SHOWN_MAX]]
    if len(paired) > len(names):
        names.append(f"and {len(paired) - len(names)} more")
    lines.append(f"- Paired for direct messages: {', '.join(names) or 'no one'}")
    return Outcome(notice="\n".join(lines))


async def answer_mcp_connect(called: CommandCalled, deps: AdminDeps) -> Outcome:
    """Answers `mcp connect`."""
    return deps.connect_tools(called) if deps.connect_tools else Outcome(notice=NO_SERVERS)


async def answer_audit(called: CommandCalled, deps: AdminDeps) -> Outcome:
    """Answers `audit` with the newest entries of this workspace."""
    count = min(int(called.argument or ENTRIES_SHOWN), ENTRIES_SHOWN_MAX)
    address = called.address
    found = await deps.audit_log.newest_entries(
        limit=max(1, count), platform=address.platform, workspace_id=address.workspace_id
    )
    lines = [f"- {_format_entry(entry, escape_name)}" for entry in found]
    if len(lines) == ENTRIES_SHOWN_MAX:
        lines.append(f"These are the newest {ENTRIES_SHOWN_MAX}; `threadhand audit` shows all of them to the operator.")
    return Outcome(notice="\n".join(lines) or "Nothing has been recorded here yet.")


def format_audit_entry(entry: AuditEntry) -> str:
    """Returns an audit entry as one line for the operator, including its workspace and channel."""
    where = f"{entry.address.platform}/{entry.address.workspace_id}/{entry.address.channel_id}"
    return f"{_format_entry(entry, single_line)}  {where}" + (f"  run {entry.run_id}" if entry.run_id else "")


def format_feedback(feedback: Feedback) -> str:
    """Returns a user's rating of an answer as one line for the operator, including the text of the request."""
    reason = f": {single_line(feedback.reason, REASON_CHARACTERS_MAX)}" if feedback.reason else ""
    return (
        f"{feedback.given_at:%Y-%m-%d %H:%M} {'good' if feedback.is_good else 'bad '}"
        f" {_format_person(feedback.person, single_line)} thread {feedback.thread_id}"
        f" “{single_line(feedback.request)}”{reason}"
    )


def _format_entry(entry: AuditEntry, show: Callable[[str], str]) -> str:
    when = entry.happened_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    subject = f": {show(entry.subject)}" if entry.subject else ""
    return f"{when} {_format_person(entry.actor, show)} {_WORDS[entry.action]}{subject}"


def _format_person(person: Person, show: Callable[[str], str] = escape_name) -> str:
    return f"{show(person.name)} ({show(person.person_id)})"
