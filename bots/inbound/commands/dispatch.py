"""Answers chat commands such as `status`, `files` and `forget` immediately, without a run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.admin import ADMINS_ONLY, AdminDeps, answer_admin
from bots.inbound.commands.knowledge import KnowledgeDeps, answer_knowledge
from bots.inbound.commands.plan import answer_plan
from core.agents.definition import DEFAULT_AGENT
from core.agents.roster import Roster, unknown_agent_message
from core.domain.errors import AgentError, ToolError
from core.domain.plans import PlanStore
from core.domain.threads import Person, ThreadSnapshot, Usage
from core.ports import SandboxProvider, StopSignals
from core.stores import Conversations

FILES_SHOWN_MAX = 30
HELP = """Mention me and say what you need; attach files if they help. In a thread that I am in, just write.
- `stop` ends what I am doing; so does a cross on your message
- `status`, `files`, `usage` show what I am doing, my files and the cost
- `knowledge add` with attached files adds them to what I know here; `knowledge list`, `knowledge remove NAME`
- `use` lists the agents, `use NAME` chooses one for this conversation; `agent:NAME` at the start of a \
message chooses one for that request only
- `plan` shows my current plan; `plan add TEXT`, `plan remove NUMBER`, `plan skip NUMBER`, `plan stop` change it
- `new` starts a new conversation here; `forget` deletes this conversation and its files
- admins: `pair CODE`, `unpair NAME`, `who`, `audit`"""

NO_THREAD_YET = (
    "There is no conversation with me here yet. Begin one with `/agent run` and its option `agent`, "
    "or start a message to me with `agent:NAME`."
)
_HOW = (
    f"`use NAME` chooses one for this conversation (`use {DEFAULT_AGENT}` goes back to the usual one), "
    "`agent:NAME` at the start of a message for that request alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDeps:
    """Dependencies of the chat commands. A command whose optional dependency is None is unavailable."""

    conversations: Conversations
    sandboxes: SandboxProvider | None
    signals: StopSignals
    knowledge: KnowledgeDeps | None = None
    roster: Roster | None = None
    plans: PlanStore | None = None
    admin: AdminDeps | None = None


async def answer_command(called: CommandCalled, deps: CommandDeps) -> Outcome:
    """Answers a chat command. The command `stop` is handled elsewhere, because it goes through the inbox."""
    if called.name == "help":
        return Outcome(notice=HELP)
    if called.name in ADMIN_COMMANDS:
        return await answer_admin(called, deps.admin) if deps.admin else Outcome(notice=ADMINS_ONLY)
    if called.name == "knowledge":
        if deps.knowledge is None:
            return Outcome(notice="There is no knowledge base here.")
        return Outcome(notice=await answer_knowledge(called, deps.knowledge), is_private=False)
    if called.name == "use":
        if deps.roster is None:
            return Outcome(notice="There is only one agent here.")
        return await _use(called, deps.roster, deps.conversations)
    return await _answer_in_thread(called, deps)


async def _use(called: CommandCalled, roster: Roster, conversations: Conversations) -> Outcome:
    """Answers `use`: lists the agents or, given a name, selects the agent for future requests in this conversation."""
    agents = await roster.agents()
    address = called.address
    snapshot = await conversations.find(address)
    chosen = snapshot.thread.agent_id if snapshot else None
    name = called.argument.strip().strip("`").lower()
    if not name:
        current = roster.agent_in(address.channel_id, chosen)
        lines = [
            f"- `{agent_id}`{' (works here)' if agent_id == current else ''}: {agent.description}"
            for agent_id, agent in agents.items()
        ]
        return Outcome(notice="\n".join([*lines, _HOW]))
    if name not in agents:
        return Outcome(notice=unknown_agent_message(name, agents))
    if snapshot is None and address.platform == "discord" and address.thread_key != "dm":
        return Outcome(notice=NO_THREAD_YET)
    await roster.versions.choose(address, name, by=called.person)
    return Outcome(
        notice=f"`{name}` works in this conversation from the next request on.", is_private=False
    )


async def _answer_in_thread(called: CommandCalled, deps: CommandDeps) -> Outcome:
    snapshot = await deps.conversations.find(called.address)
    if snapshot is None:
        return Outcome(notice="There is no conversation with me here yet.")
    if called.name == "plan" and deps.plans is not None:
        return await answer_plan(called, snapshot, deps.plans)
    answer = _ANSWERS.get(called.name)
    notice = await answer(snapshot, deps, called.person) if answer else HELP
    return Outcome(notice=notice, is_private=called.name not in PUBLIC_COMMANDS)


async def _status(snapshot: ThreadSnapshot, deps: CommandDeps, by: Person) -> str:
    del deps, by
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


async def _files(snapshot: ThreadSnapshot, deps: CommandDeps, by: Person) -> str:
    del by
    if deps.sandboxes is None:
        return "There is no sandbox on this machine, so there are no files."
    try:
        sandbox = await deps.sandboxes.open(snapshot.thread.thread_id, fence=0)
        entries = await sandbox.files.list(".")
    except (AgentError, ToolError) as error:
        return f"The files cannot be listed: {error}"
    shown = [entry for entry in entries if not entry.path.startswith(".")]
    if not shown:
        return "There are no files yet."
    lines = [
        f"- `{entry.path}/`"
        if entry.kind == "folder"
        else f"- `{entry.path}` ({format_size(entry.size_bytes)})"
        for entry in shown[:FILES_SHOWN_MAX]
    ]
    if len(shown) > FILES_SHOWN_MAX:
        lines.append(f"- and {len(shown) - FILES_SHOWN_MAX} more")
    return "\n".join(lines)


async def _usage(snapshot: ThreadSnapshot, deps: CommandDeps, by: Person) -> str:
    del by
    return format_usage(await deps.conversations.usage(thread_id=snapshot.thread.thread_id))


async def _new(snapshot: ThreadSnapshot, deps: CommandDeps, by: Person) -> str:
    if snapshot.active_run is not None:
        return "I am still working here. Stop me first, then start a new conversation."
    await deps.conversations.unbind(snapshot.thread.address, by=by)
    return "Done. The next message here starts a new conversation."


async def _forget(snapshot: ThreadSnapshot, deps: CommandDeps, by: Person) -> str:
    """Deletes a conversation and its sandbox.

    Deletes the sandbox before the conversation, because after a crash in between it could no longer be found. Deletes
    it again at the end, because a worker may have created a new sandbox in the meantime.
    """
    thread_id, run = snapshot.thread.thread_id, snapshot.active_run
    if deps.sandboxes is not None:
        await deps.sandboxes.destroy(thread_id)
    await deps.conversations.forget(thread_id, by=by)
    if run is not None:
        await deps.signals.send(run.run_id)
    if deps.sandboxes is not None:
        await deps.sandboxes.destroy(thread_id)
    return "Forgotten: this conversation, its files and its sandbox are deleted."


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


PUBLIC_COMMANDS = frozenset({"new", "forget"})
ADMIN_COMMANDS = frozenset({"pair", "unpair", "who", "audit"})
_ANSWERS: dict[str, Callable[[ThreadSnapshot, CommandDeps, Person], Awaitable[str]]] = {
    "status": _status,
    "files": _files,
    "usage": _usage,
    "new": _new,
    "forget": _forget,
}
