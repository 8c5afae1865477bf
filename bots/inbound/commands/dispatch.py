"""Answers chat commands such as `status` and `forget` immediately, without a run, and suggests values for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.admin import ADMINS_ONLY, AdminDeps, answer_admin
from bots.inbound.commands.agents import answer_agents
from bots.inbound.commands.budget import BudgetDeps, answer_budget
from bots.inbound.commands.erasure import ErasureDeps, answer_export, answer_forget, no_conversation
from bots.inbound.commands.knowledge import KnowledgeDeps, answer_knowledge
from bots.inbound.commands.plan import answer_plan
from core.agents.definition import DEFAULT_AGENT, AgentDefinition
from core.agents.roster import Roster, unknown_agent_message
from core.domain.errors import AgentError, SurfaceError, ThreadhandError, ToolError
from core.domain.model_options import NO_OPTIONS
from core.domain.plans import PlanStore
from core.domain.threads import FollowMode, ThreadSnapshot, Usage
from core.knowledge.ports import Scope
from core.ports import FileEntry, OutgoingFile, SandboxProvider
from core.stores import Conversations, FollowModes
from core.tasks import spawn
from core.tools.workspace.paths import workspace_path

FILES_SHOWN_MAX = 30
HELP = """In a channel, mention me and say what you need. In a direct message, or a thread that I am in, just write. \
Attach files if they help.
- `stop` ends what I am doing; so does a cross on your message
- `status`, `files`, `usage` show what I am doing, my files and the cost
- `knowledge add` with attached files adds them to what I know here; `knowledge list`, `knowledge remove NAME`
- `use` lists the agents, `use NAME` chooses one for this conversation; `agent:NAME` at the start of a \
message chooses one for that request only
- `agents versions NAME` lists an agent's versions, `agents compare NAME 1 3` what changed; admins: \
`agents rollback NAME 1`, `agents reset NAME`
- `plan` shows my current plan; `plan add TEXT`, `plan remove NUMBER`, `plan skip NUMBER`, `plan stop` change it
- `follow` makes me read everything here and answer what is meant for me, `follow mention` only mentions, \
`follow quiet` nothing until someone mentions me; `follow default` undoes these
- `new` starts a new conversation here; `export` posts this one as a file; `forget` deletes it and its files
- `forget me` removes what is stored about you
- `budget` shows what a run, a person and this workspace may cost; admins change it: `budget run 5`
- admins: `pair CODE`, `unpair NAME`, `who`, `audit`, `mcp connect NAME`"""

NO_THREAD_YET = (
    "There is no conversation with me here yet. Begin one with a message to me that starts with `agent:NAME`; "
    "in Discord, `/agent run` has the option `agent`."
)
_HOW = (
    f"`use NAME` chooses one for this conversation (`use {DEFAULT_AGENT}` goes back to the usual one), "
    "`agent:NAME` at the start of a message for that request alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDeps:
    """Dependencies of the chat commands. `sandboxes` is None on a machine without sandboxes. `describe_run` returns the
    steps of a run as Markdown, or an empty text if they are deleted."""

    conversations: Conversations
    sandboxes: SandboxProvider | None
    erasure: ErasureDeps
    knowledge: KnowledgeDeps
    roster: Roster
    plans: PlanStore
    admin: AdminDeps
    budget: BudgetDeps
    follow_modes: FollowModes
    describe_run: Callable[[str], Awaitable[str]]


async def answer_command(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers a chat command. The command `stop` is handled elsewhere, because it goes through the inbox."""
    if called.name == "help":
        return Outcome(notice=HELP)
    if called.name in ADMIN_COMMANDS:
        return await answer_admin(called, deps.admin)
    if called.name == "agents":
        return await answer_agents(called, deps.roster, deps.admin.policy)
    if called.name == "budget":
        return await answer_budget(called, deps.budget)
    if called.name == "forget":
        return await answer_forget(called, deps.erasure, deps.admin.policy)
    if called.name == "export":
        return await answer_export(called, deps.erasure)
    answer = {"knowledge": _knowledge, "use": _use, "follow": _follow}.get(called.name)
    return await (answer or _answer_in_thread)(called, deps)


async def _knowledge(called: CommandCalled, deps: CommandDeps) -> Outcome:
    return Outcome(notice=await answer_knowledge(called, deps.knowledge), is_private=False)


async def _use(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers `use`: lists the agents or, given a name, selects the agent for future requests in this conversation."""
    roster, conversations = deps.roster, deps.conversations
    agents = await roster.agents()
    address = called.address
    snapshot = await conversations.find(address)
    chosen = snapshot.thread.agent_id if snapshot else None
    name = called.argument.strip().strip("`").lower()
    if not name:
        current = roster.agent_in(address.channel_id, chosen)
        lines = [
            f"- `{agent_id}`{' (works here)' if agent_id == current else ''}: {agent.description}"
            f"{_options_note(roster, address.channel_id, agent)}"
            for agent_id, agent in agents.items()
        ]
        return Outcome(notice="\n".join([*lines, _HOW]))
    if name not in agents:
        return Outcome(notice=unknown_agent_message(name, agents))
    is_outside = not address.thread_key  # as `/threadhand` in Slack
    if address.platform == "discord" and snapshot is None:
        is_outside = address.thread_key != "dm"
    if is_outside:
        return Outcome(notice=NO_THREAD_YET)
    said = called.message.message_ref if called.message else ""
    await roster.versions.choose(address, name, by=called.person, begins_with=said)
    return Outcome(notice=f"`{name}` works in this conversation from the next request on.", is_private=False)


def _options_note(roster: Roster, channel_id: str, agent: AgentDefinition) -> str:
    own = roster.options.get(agent.model, NO_OPTIONS)
    options = str(own.replaced_by(roster.options_in(channel_id, agent)))
    return f" ({options})" if options else ""


async def _follow(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers `follow`. Only admins may choose for a whole channel."""
    address = called.address
    name, _, place = called.argument.partition(" ")
    mode: FollowMode = cast(FollowMode, name) if name in FOLLOWED else "follow"
    is_here = called.is_addressed or await deps.conversations.find(address) is not None
    if not is_here:
        return Outcome(is_ignored=True)
    # `/threadhand` in Slack is called in a channel and not in a thread
    is_whole_channel = bool(place) or not address.thread_key
    if is_whole_channel:
        is_admin = deps.admin.policy.is_admin(address.workspace_id, called.person.person_id, called.actor)
        if not is_admin:
            return Outcome(notice=ADMINS_ONLY)
    await deps.follow_modes.set(address, mode, is_whole_channel=is_whole_channel)
    where = "channel" if is_whole_channel else "thread"
    notice = FOLLOWED[mode].format(where)
    if is_whole_channel and mode == "follow":
        notice = f"{notice} Outside the threads that I am in, I still need a mention."
    return Outcome(notice=notice, is_private=False)


FOLLOWED: Mapping[FollowMode, str] = {
    "default": "In this {} I answer without a mention only while one person writes to me; otherwise mention me.",
    "follow": "I read everything in this {} now, and answer what is meant for me. `follow default` ends that.",
    "mention": "From now on I answer in this {} only when I am mentioned.",
    "quiet": "I stay quiet in this {} until someone mentions me.",
}


async def _answer_in_thread(called: CommandCalled, deps: CommandDeps) -> Outcome:
    snapshot = await deps.conversations.find(called.address)
    if snapshot is None:
        return Outcome(notice=no_conversation(called))
    if called.name == "plan":
        return await answer_plan(called, snapshot, deps.plans)
    if called.name == "files":
        return await _files(called, snapshot, deps)
    if called.name == "new":
        return Outcome(notice=await _new(called, snapshot, deps), is_private=False)
    if called.name == "usage":
        usage = await deps.conversations.usage(thread_id=snapshot.thread.thread_id)
        return Outcome(notice=format_usage(usage))
    return Outcome(notice=_status(snapshot) if called.name == "status" else HELP)


def _status(snapshot: ThreadSnapshot) -> str:
    run = snapshot.active_run
    if run is not None:
        who = f" for {run.requester.name}" if run.requester else ""
        if run.agent_id not in (None, DEFAULT_AGENT):
            who += f" as `{run.agent_id}`"
        if run.status == "waiting":
            return f"Waiting for an approval{who}."
        return f"Working{who}." if run.status == "running" else f"Waiting in line{who}."
    if snapshot.open_ask is not None:
        return f"Waiting for an answer to: {snapshot.open_ask.text}"
    if snapshot.last_run is None:
        return "Nothing has been asked of me here yet."
    return f"Idle. The last run {snapshot.last_run.status}."


async def _files(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `files`: lists the workspace or, given a path, posts that file or lists that folder."""
    if deps.sandboxes is None:
        return Outcome(notice="There is no sandbox on this machine, so there are no files.")
    path = called.argument.strip().strip("`").rstrip("/")
    try:
        sandbox = await deps.sandboxes.open(snapshot.thread.thread_id, fence=0)
        entries = await sandbox.files.list(path or ".")
        is_file = path and [(one.path, one.kind) for one in entries] == [(workspace_path(path), "file")]
        if not is_file:
            return Outcome(notice=_list_entries(entries))
        size = entries[0].size_bytes
        pieces = sandbox.files.read(path, length=size)
        file = OutgoingFile(name=path.rpartition("/")[2], size_bytes=size, pieces=pieces)
        await deps.erasure.upload(called.address, file)
    except (AgentError, ToolError) as error:
        return Outcome(notice=f"The files cannot be read: {error}")
    except SurfaceError as error:
        return Outcome(notice=f"The file could not be posted: {error}")
    return Outcome(notice=f"`{path}` is posted here.")


def _list_entries(entries: Sequence[FileEntry]) -> str:
    shown = [entry for entry in entries if not entry.path.startswith(".")]
    if not shown:
        return "There are no files yet."
    lines = [
        f"- `{entry.path}/`" if entry.kind == "folder" else f"- `{entry.path}` ({format_size(entry.size_bytes)})"
        for entry in shown[:FILES_SHOWN_MAX]
    ]
    if len(shown) > FILES_SHOWN_MAX:
        lines.append(f"- and {len(shown) - FILES_SHOWN_MAX} more")
    return "\n".join(lines)


async def _new(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> str:
    address = snapshot.thread.address
    if not await deps.conversations.unbind(address, by=called.person, begun_by=called.sent_at):
        return "I am still working here. Stop me first, then start a new conversation."
    if snapshot.open_ask is not None:
        deps.erasure.wake_delivery(snapshot.open_ask.run_id)
    return "Done. The next message here starts a new conversation."


def format_usage(usage: Usage) -> str:
    """Returns token usage and cost as one line of text for users."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    read, cost = f"{usage.input_tokens:,} tokens in{cached}", f"${usage.cost_usd:.4f}"
    estimated = f" (${usage.estimated_usd:.4f} of it estimated)" if usage.estimated_usd else ""
    return f"{read}, {usage.output_tokens:,} out, {cost}{estimated}"


def format_size(size_bytes: int) -> str:
    """Returns a file size in decimal units, for example "1.5 MB"."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    if size_bytes < 1000**2:
        return f"{size_bytes / 1000:.1f} kB"
    if size_bytes < 1000**3:
        return f"{size_bytes / 1000**2:.1f} MB"
    return f"{size_bytes / 1000**3:.1f} GB"


ADMIN_COMMANDS = frozenset({"pair", "unpair", "who", "audit", "mcp"})

log = logging.getLogger(__name__)

SUGGESTIONS_MAX = 25
VALUE_CHARACTERS_MAX = 100
SUGGEST_SECONDS_MAX = 2.0
"""Platforms wait three seconds for suggestions."""
Suggestion = tuple[str, str]
"""The value of the option, and the label that people see."""


async def suggest_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the values that contain what was typed (`called.argument`): agents for `use`, knowledge of the thread for
    `knowledge`, and files of its workspace for `files`.

    Returns nothing if they are not known within two seconds; a sandbox that starts meanwhile goes on doing so.
    """
    finding = spawn(_find_values(called, deps), name="suggestions")
    await asyncio.wait({finding}, timeout=SUGGEST_SECONDS_MAX)
    typed = called.argument.strip().casefold()
    found = finding.result() if finding.done() else ()
    fitting = [
        (value, label) for value, label in found if typed in label.casefold() and len(value) <= VALUE_CHARACTERS_MAX
    ]
    return sorted(fitting, key=lambda one: not one[0].casefold().startswith(typed))[:SUGGESTIONS_MAX]


async def _find_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    try:
        if called.name in ("use", "agents"):
            agents = await deps.roster.agents()
            return [(name, f"{name}: {agent.description}") for name, agent in agents.items()]
        snapshot = await deps.conversations.find(called.address)
        if snapshot is None:
            return ()
        thread_id = snapshot.thread.thread_id
        if called.name == "knowledge":
            entries = await deps.knowledge.knowledge_base.store.entries([Scope("thread", thread_id)])
            return [(entry.name, entry.name) for entry in entries]
        return await _file_suggestions(thread_id, called.argument, deps)
    except ThreadhandError as error:
        log.info("no values can be suggested for %s: %s", called.name, error)
        return ()


async def _file_suggestions(thread_id: str, typed: str, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the files in the folder that was typed, and its folders."""
    if deps.sandboxes is None:
        return ()
    sandbox = await deps.sandboxes.open(thread_id, fence=0)
    entries = await sandbox.files.list(typed.rpartition("/")[0] or ".")
    names = [f"{one.path}/" if one.kind == "folder" else one.path for one in entries]
    return [(name, name) for name in names if not name.startswith(".")]
