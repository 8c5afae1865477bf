"""The chat commands about a conversation: `use`, `follow`, `status`, `usage`, `files` and `new`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.admin import ADMINS_ONLY, AdminDeps
from bots.inbound.commands.budget import BudgetDeps
from bots.inbound.commands.forget import ForgetDeps, answer_without_conversation
from bots.inbound.commands.knowledge import KnowledgeDeps
from bots.inbound.commands.schedules import ScheduleDeps
from core.agents.definition import DEFAULT_AGENT
from core.agents.roster import Roster, unknown_agent_message
from core.domain.errors import RunError, SurfaceError, ToolError
from core.domain.model_options import NO_OPTIONS
from core.domain.outside_text import escape_name, inline_code
from core.domain.plans import PlanStore
from core.domain.threads import FollowMode, ThreadSnapshot, Usage
from core.ports import FileEntry, OutgoingFile, SandboxProvider
from core.stores import Asks, Conversations, FollowModes
from core.tools.workspace.paths import workspace_path

FILES_SHOWN_MAX = 30
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
    """Dependencies of the chat commands.

    `sandboxes` is None if the machine has no sandboxes. `describe_run` returns the steps of a run as Markdown, or an
    empty text if they have been deleted."""

    conversations: Conversations
    asks: Asks
    sandboxes: SandboxProvider | None
    erasure: ForgetDeps
    knowledge: KnowledgeDeps
    roster: Roster
    plans: PlanStore
    admin: AdminDeps
    budget: BudgetDeps
    follow_modes: FollowModes
    schedules: ScheduleDeps
    describe_run: Callable[[str], Awaitable[str]]


def require_conversation(
    answer: Callable[[CommandCalled, ThreadSnapshot, CommandDeps], Awaitable[Outcome]],
) -> Callable[[CommandCalled, CommandDeps], Awaitable[Outcome]]:
    """Wraps a command that needs a conversation. Without one, the wrapped command responds that there is none."""

    async def answer_there(called: CommandCalled, deps: CommandDeps) -> Outcome:
        snapshot = await deps.conversations.find(called.address)
        if snapshot is None:
            return await answer_without_conversation(called, deps.conversations)
        return await answer(called, snapshot, deps)

    return answer_there


async def answer_use(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers `use`: lists the agents or, given a name, selects the agent for future requests in this conversation."""
    roster, conversations = deps.roster, deps.conversations
    agents = await roster.current_definitions()
    address = called.address
    snapshot = await conversations.find(address)
    chosen = snapshot.thread.agent_id if snapshot else None
    name = called.argument.lower()
    if not name:
        current = roster.agent_in(address.settings_channel_id, chosen)
        lines: list[str] = []
        for agent_id, agent in agents.items():
            own = roster.options.get(agent.model, NO_OPTIONS)
            options = str(own.replaced_by(roster.options_in(address.settings_channel_id, agent)))
            note = f" ({options})" if options else ""
            lines.append(f"- `{agent_id}`{' (works here)' if agent_id == current else ''}: {agent.description}{note}")
        return Outcome(notice="\n".join([*lines, _HOW]))
    if name not in agents:
        return Outcome(notice=unknown_agent_message(name, agents))
    is_outside = not address.thread_key  # Slack's `/threadhand` is used outside threads
    if address.platform == "discord" and snapshot is None:
        is_outside = address.thread_key != "dm"
    if is_outside:
        return Outcome(notice=NO_THREAD_YET)
    message_ref = called.message.message_ref if called.message else ""
    await roster.versions.choose_agent(address, name, by=called.person, begins_with=message_ref)
    return Outcome(notice=f"`{name}` works in this conversation from the next request on.", is_private=False)


async def answer_follow(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers `follow`. Without a mention, the command works only in an existing conversation. Only admins can choose
    the mode of a whole channel."""
    address, words = called.address, called.argument.split()
    if not (called.is_addressed or await deps.conversations.find(address) is not None):
        return Outcome(is_ignored=True)
    mode = cast(FollowMode, words[0]) if words and words[0] in FOLLOWED else "follow"
    # in Slack, `/threadhand` is called in a channel, not in a thread
    is_whole_channel = "channel" in words or not address.thread_key
    if is_whole_channel and not deps.admin.policy.is_admin(address.workspace_id, called.person.person_id, called.actor):
        return Outcome(notice=ADMINS_ONLY)
    await deps.follow_modes.set_mode(address, mode, is_whole_channel=is_whole_channel)
    where = "the threads of this channel that I am called into" if is_whole_channel else "this thread"
    return Outcome(notice=FOLLOWED[mode].format(where), is_private=False)


FOLLOWED: Mapping[FollowMode, str] = {
    "default": "In {} I answer without a mention only while one person writes to me; otherwise mention me.",
    "follow": "I read everything in {} now, and answer what is meant for me. `follow default` ends that.",
    "mention": "From now on I answer in {} only when I am mentioned.",
    "quiet": "I stay quiet in {} until someone mentions me.",
}


async def answer_usage(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `usage`."""
    return Outcome(notice=format_usage(await deps.conversations.usage(thread_id=snapshot.thread.thread_id)))


async def answer_status(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `status`."""
    run = snapshot.active_run
    if run is not None:
        who = f" for {escape_name(run.requester.name)}" if run.requester else ""
        if run.agent_id not in (None, DEFAULT_AGENT):
            who += f" as `{run.agent_id}`"
        states = {"waiting": "Waiting for an approval", "running": "Working"}
        notice = f"{states.get(run.status, 'Waiting in line')}{who}."
    elif snapshot.open_ask is not None:
        notice = f"Waiting for an answer to: {snapshot.open_ask.text}"
    elif snapshot.last_run is None:
        notice = "Nothing has been asked of me here yet."
    else:
        notice = f"Idle. The last run {snapshot.last_run.status}."
    return Outcome(notice=notice)


async def answer_files(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `files`: lists the workspace or, given a path, posts that file or lists that folder."""
    if deps.sandboxes is None:
        return Outcome(notice="There is no sandbox on this machine, so there are no files.")
    path = called.argument.rstrip("/")
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
    except (RunError, ToolError) as error:
        return Outcome(notice=f"The files cannot be read: {error}")
    except SurfaceError as error:
        return Outcome(notice=f"The file could not be posted: {error}")
    return Outcome(notice=f"{inline_code(path)} is posted here.")


def _list_entries(entries: Sequence[FileEntry]) -> str:
    shown = [entry for entry in entries if not entry.path.startswith(".")]
    if not shown:
        return "There are no files yet."
    lines = [
        f"- {inline_code(entry.path + '/')}"
        if entry.kind == "folder"
        else f"- {inline_code(entry.path)} ({format_size(entry.size_bytes)})"
        for entry in shown[:FILES_SHOWN_MAX]
    ]
    if len(shown) > FILES_SHOWN_MAX:
        lines.append(f"- and {len(shown) - FILES_SHOWN_MAX} more")
    return "\n".join(lines)


async def answer_new(called: CommandCalled, snapshot: ThreadSnapshot, deps: CommandDeps) -> Outcome:
    """Answers `new`: the next message begins a new conversation."""
    address = snapshot.thread.address
    if not await deps.conversations.unbind(address, by=called.person, begun_by=called.sent_at):
        notice = "I am still working here. Stop me first, then start a new conversation."
        return Outcome(notice=notice, is_private=False)
    if snapshot.open_ask is not None:
        deps.erasure.wake_delivery(snapshot.open_ask.run_id)
    return Outcome(notice="Done. The next message here starts a new conversation.", is_private=False)


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
