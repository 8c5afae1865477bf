"""The audit log and the pairings as admins read and change them in the chat."""

from dataclasses import dataclass
from datetime import UTC, datetime

from bots.inbound.access import AccessPolicy, hash_code, pairing_workspace
from bots.inbound.actions import CommandCalled, Outcome
from core.domain.audit import AuditAction, AuditEntry, AuditLog
from core.domain.pairing import Pairings
from core.domain.threads import Person

ENTRIES_SHOWN = 10
ENTRIES_SHOWN_MAX = 30
PEOPLE_SHOWN_MAX = 50
ADMINS_ONLY = "That is for admins of this bot alone."
NOT_IN_PUBLIC = "Here everybody would read it. Ask me with `/agent {name}`, or in a direct message."
_WORDS: dict[AuditAction, str] = {
    "run_requested": "asked for a run",
    "question_answered": "answered a question",
    "approval_given": "approved",
    "approval_denied": "denied",
    "stop_requested": "asked for a stop",
    "conversation_renewed": "began a new conversation",
    "conversation_forgotten": "had a conversation forgotten",
    "agent_chosen": "chose the agent",
    "knowledge_changed": "changed what is known",
    "plan_changed": "changed the plan",
    "paired": "paired",
    "unpaired": "unpaired",
    "workspace_joined": "installed the bot",
    "workspace_left": "removed the bot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDeps:
    """What the words of admins look at."""

    policy: AccessPolicy
    pairings: Pairings
    log: AuditLog


async def answer_admin(called: CommandCalled, desk: AdminDeps) -> Outcome:
    """The answer to a word of admins; whoever is none is told so."""
    address, person = called.address, called.person
    if not desk.policy.is_admin(address.workspace_id, person.person_id, called.standing):
        return Outcome(notice=ADMINS_ONLY)
    match called.name:
        case "pair":
            return await _pair(called, desk)
        case "unpair":
            return await _unpair(called, desk)
        case _ if _is_read_by_all(called):
            return Outcome(notice=NOT_IN_PUBLIC.format(name=called.name))
        case "who":
            return Outcome(notice=await _who(called, desk))
        case _:
            return Outcome(notice=await _entries(called, desk))


def _is_read_by_all(called: CommandCalled) -> bool:
    """A word in a message in Discord is answered for everybody; Slack shows the answer to one person."""
    is_private = called.standing.expects_answer or called.standing.is_direct
    return called.address.platform == "discord" and not is_private


async def _pair(called: CommandCalled, desk: AdminDeps) -> Outcome:
    address = called.address
    person = await desk.pairings.pair(
        hash_code(called.argument),
        workspace_id=pairing_workspace(address),
        at=address,
        by=called.person,
    )
    if person is None:
        return Outcome(notice="There is no such code, or its time is over.")
    return Outcome(notice=f"{_format_person(person)} may write to me in direct messages now.")


async def _unpair(called: CommandCalled, desk: AdminDeps) -> Outcome:
    address = called.address
    person = await desk.pairings.unpair(
        called.argument.strip("@`"),
        workspace_id=pairing_workspace(address),
        at=address,
        by=called.person,
    )
    if person is None:
        return Outcome(notice="Nobody is paired under that name or id; `who` lists them.")
    return Outcome(
        notice=f"{_format_person(person)} may not write to me in direct messages any more."
    )


async def _who(called: CommandCalled, desk: AdminDeps) -> str:
    """The lists as they are set, and who was paired; of other workspaces' pairings nothing."""
    address, policy = called.address, desk.policy
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
    paired = await desk.pairings.paired(address.platform, pairing_workspace(address))
    names = [_format_person(person) for person in paired[:PEOPLE_SHOWN_MAX]]
    if len(paired) > len(names):
        names.append(f"and {len(paired) - len(names)} more")
    lines.append(f"- Paired for direct messages: {', '.join(names) or 'nobody'}")
    return "\n".join(lines)


async def _entries(called: CommandCalled, desk: AdminDeps) -> str:
    count = min(int(called.argument or ENTRIES_SHOWN), ENTRIES_SHOWN_MAX)
    address = called.address
    found = await desk.log.newest(
        limit=max(1, count), platform=address.platform, workspace_id=address.workspace_id
    )
    lines = [f"- {_format_entry(entry)}" for entry in found]
    return "\n".join(lines) or "Nothing has been recorded here yet."


def format_audit_entry(entry: AuditEntry) -> str:
    """One entry on one line, with the workspace, for the operator."""
    where = f"{entry.address.platform}/{entry.address.workspace_id}/{entry.address.channel_id}"
    return f"{_format_entry(entry)}  {where}" + (f"  run {entry.run_id}" if entry.run_id else "")


def _format_entry(entry: AuditEntry) -> str:
    when = entry.happened_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    subject = f": {_one_line(entry.subject)}" if entry.subject else ""
    return f"{when} {_format_person(entry.actor)} {_WORDS[entry.action]}{subject}"


def _format_person(person: Person) -> str:
    return f"{_one_line(person.name)} ({_one_line(person.person_id)})"


def _one_line(text: str) -> str:
    """Without what steers a terminal or turns the writing around."""
    shown = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return shown[:120]


def audit_entry_for(called: CommandCalled, outcome: Outcome) -> AuditEntry | None:
    """The entry of a word whose doing no store records itself; None: it only showed something."""
    verb = called.argument.strip().partition(" ")[0].lower()
    names = ", ".join(file.name for file in called.files)
    if called.name == "knowledge" and verb in ("add", "remove"):
        action: AuditAction = "knowledge_changed"
        subject = f"add {names}" if verb == "add" else called.argument.strip()
    elif called.name == "plan" and not outcome.is_private:
        action, subject = "plan_changed", verb
    else:
        return None
    return AuditEntry(
        action=action,
        actor=called.person,
        address=called.address,
        subject=subject,
        happened_at=datetime.now(UTC),
    )
