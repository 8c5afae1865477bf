"""The word `knowledge`: files that the agent is to know in a thread, added, listed and removed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bots.inbound import CommandCalled
from core.budget import Ledger
from core.errors import AgentError, ToolError
from core.inputs import safe_name
from core.knowledge.desk import Library
from core.knowledge.ports import Scope
from core.ports import FileSource
from core.stores import Conversations
from core.threads import IncomingFile, Usage

SHOWN_MAX = 30
USAGE = (
    "Write `knowledge add` with files attached, `knowledge list`, or `knowledge remove NAME`. "
    "What is added is known in this conversation."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Where the knowledge of threads is kept, and how files come to it. `charge` prices what their vectors cost, which
    is booked in the ledger."""

    library: Library
    conversations: Conversations
    sources: Mapping[str, FileSource]
    file_bytes_max: int
    ledger: Ledger
    charge: Callable[[str, Usage], Usage]


async def answer_knowledge(called: CommandCalled, shelf: Shelf) -> str:
    """One answer for the thread, in Markdown."""
    verb, _, rest = called.argument.strip().partition(" ")
    match verb.lower():
        case "add":
            return await _add(called, shelf)
        case "" | "list":
            return await _list(called, shelf)
        case "remove":
            return await _remove(called, shelf, rest.strip().strip("`"))
        case _:
            return USAGE


async def _scope(called: CommandCalled, shelf: Shelf) -> Scope | None:
    snapshot = await shelf.conversations.find(called.address)
    return Scope("thread", snapshot.thread.thread_id) if snapshot else None


async def _add(called: CommandCalled, shelf: Shelf) -> str:
    if not called.files:
        return "Attach the files that I should know. " + USAGE
    scope = await _scope(called, shelf)
    if scope is None:
        thread = await shelf.conversations.create(called.address)
        scope = Scope("thread", thread.thread_id)
    used: list[tuple[str, Usage]] = []
    paid = shelf.library.charged_to(
        lambda model, usage: used.append((model, shelf.charge(model, usage)))
    )
    try:
        lines = [
            await _added(file, scope, called.address.platform, replace(shelf, library=paid))
            for file in called.files
        ]
    finally:
        if used:
            await shelf.ledger.book(
                used, thread_id=scope.owner_id, at=called.address, by=called.person
            )
    return "\n".join(lines)


async def _added(file: IncomingFile, scope: Scope, platform: str, shelf: Shelf) -> str:
    name = safe_name(file.name)
    source = shelf.sources.get(platform)
    if source is None:
        return f"- `{name}`: files cannot be fetched here."
    try:
        pieces = source.open(file, bytes_max=shelf.file_bytes_max)
        entry = await shelf.library.add(scope, name, pieces)
    except (AgentError, ToolError) as error:
        return f"- `{name}` was not added: {error}"
    return f"- I know `{entry.name}` now (about {entry.tokens:,} tokens)."


async def _list(called: CommandCalled, shelf: Shelf) -> str:
    scope = await _scope(called, shelf)
    entries = await shelf.library.store.entries([scope]) if scope else ()
    if not entries:
        return "I know no files here yet. " + USAGE
    lines = [f"- `{entry.name}` (about {entry.tokens:,} tokens)" for entry in entries[:SHOWN_MAX]]
    if len(entries) > SHOWN_MAX:
        lines.append(f"- and {len(entries) - SHOWN_MAX} more")
    return "\n".join(lines)


async def _remove(called: CommandCalled, shelf: Shelf, name: str) -> str:
    scope = await _scope(called, shelf)
    if not name or scope is None:
        return USAGE
    removed = await shelf.library.remove(scope, name)
    return f"I have forgotten `{removed.name}`." if removed else f"I know no file named `{name}`."
