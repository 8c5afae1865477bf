"""The words and slash commands that are answered at once: status, files, usage, new, forget, and so on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.agents import answer_use
from bots.inbound.commands.admin import ADMINS_ONLY, AdminDeps, answer_admin
from bots.inbound.commands.knowledge import KnowledgeDeps, answer_knowledge
from bots.inbound.commands.plan import answer_plan
from core.agents.definition import DEFAULT_AGENT
from core.agents.roster import Roster
from core.domain.errors import AgentError, ToolError
from core.domain.plans import PlanStore
from core.domain.threads import Person, ThreadSnapshot, Usage
from core.ports import SandboxProvider, StopSignals
from core.stores import Conversations

FILES_SHOWN_MAX = 30
HELP = """Mention me and say what you need; attach files if they help. In a thread that I am in, just write.
- `stop` ends what I am doing; so does a cross on your message
- `status`, `files`, `usage` tell how things are
- `knowledge add` with files makes me know them here; `knowledge list`, `knowledge remove NAME`
- `use` tells which agents there are, `use NAME` chooses one for this conversation; `agent:NAME` at the start of a \
message asks that one alone
- `plan` shows the plan that I work on; `plan add TEXT`, `plan remove NUMBER`, `plan skip NUMBER`, `plan stop` change it
- `new` starts afresh in this place; `forget` deletes this conversation and its files
- admins: `pair CODE`, `unpair NAME`, `who`, `audit`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDeps:
    """What the commands look at."""

    conversations: Conversations
    sandboxes: SandboxProvider | None
    signals: StopSignals
    shelf: KnowledgeDeps | None = None
    roster: Roster | None = None
    plans: PlanStore | None = None
    admin: AdminDeps | None = None


async def answer_command(called: CommandCalled, desk: CommandDeps) -> Outcome:
    """The answer to a command other than stop."""
    if called.name == "help":
        return Outcome(notice=HELP)
    if called.name in ADMIN_COMMANDS:
        return await answer_admin(called, desk.admin) if desk.admin else Outcome(notice=ADMINS_ONLY)
    if called.name == "knowledge":
        if desk.shelf is None:
            return Outcome(notice="There is no knowledge base here.")
        return Outcome(notice=await answer_knowledge(called, desk.shelf), is_private=False)
    if called.name == "use":
        if desk.roster is None:
            return Outcome(notice="There is only one agent here.")
        return await answer_use(called, desk.roster, desk.conversations)
    return await _answer_in_thread(called, desk)


async def _answer_in_thread(called: CommandCalled, desk: CommandDeps) -> Outcome:
    snapshot = await desk.conversations.find(called.address)
    if snapshot is None:
        return Outcome(notice="There is no conversation with me here yet.")
    if called.name == "plan" and desk.plans is not None:
        return await answer_plan(called, snapshot, desk.plans)
    answer = _ANSWERS.get(called.name)
    notice = await answer(snapshot, desk, called.person) if answer else HELP
    return Outcome(notice=notice, is_private=called.name not in PUBLIC_COMMANDS)


async def _status(snapshot: ThreadSnapshot, desk: CommandDeps, by: Person) -> str:
    del desk, by
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


async def _files(snapshot: ThreadSnapshot, desk: CommandDeps, by: Person) -> str:
    del by
    if desk.sandboxes is None:
        return "There is no sandbox on this machine, so there are no files."
    try:
        sandbox = await desk.sandboxes.open(snapshot.thread.thread_id, fence=0)
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


async def _usage(snapshot: ThreadSnapshot, desk: CommandDeps, by: Person) -> str:
    del by
    return format_usage(await desk.conversations.usage(thread_id=snapshot.thread.thread_id))


async def _new(snapshot: ThreadSnapshot, desk: CommandDeps, by: Person) -> str:
    if snapshot.active_run is not None:
        return "I am still working here. Stop me first, then start afresh."
    await desk.conversations.unbind(snapshot.thread.address, by=by)
    return "Done. The next message here starts afresh."


async def _forget(snapshot: ThreadSnapshot, desk: CommandDeps, by: Person) -> str:
    """The files first, found by the conversation: a crash in between must not leave them to nobody. And once more: a
    worker that has not noticed yet, or wakes just now, may have made a sandbox anew."""
    thread_id, run = snapshot.thread.thread_id, snapshot.active_run
    if desk.sandboxes is not None:
        await desk.sandboxes.destroy(thread_id)
    await desk.conversations.forget(thread_id, by=by)
    if run is not None:
        await desk.signals.send(run.run_id)
    if desk.sandboxes is not None:
        await desk.sandboxes.destroy(thread_id)
    return "Forgotten: this conversation, its files and its sandbox are deleted."


def format_usage(usage: Usage) -> str:
    """One line for people."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    read, cost = f"{usage.input_tokens:,} tokens in{cached}", f"${usage.cost_usd:.4f}"
    estimated = f" (of it estimated: ${usage.estimated_usd:.4f})" if usage.estimated_usd else ""
    return f"{read}, {usage.output_tokens:,} out, {cost}{estimated}"


def format_size(size_bytes: int) -> str:
    """A size as people write it."""
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
