"""The word `knowledge`: files that the agent is to know in a thread, added, listed and removed."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bots.inbound.actions import CommandCalled
from core.domain.budget import NO_BUDGET, NO_LIMIT, Budget, Ledger, exhausted_message, utc_day_start
from core.domain.errors import AgentError, BudgetExceeded, ToolError
from core.domain.threads import IncomingFile, Usage
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import Scope
from core.ports import FileSource
from core.run.inputs import safe_name
from core.stores import Conversations

ENTRIES_SHOWN_MAX = 30
USAGE = (
    "Write `knowledge add` with files attached, `knowledge list`, or `knowledge remove NAME`. "
    "What is added is known in this conversation."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeDeps:
    """Where the knowledge of threads is kept, and how files come to it. `charge` prices what their vectors cost, which
    is booked in the ledger and counts for the days of the budget."""

    library: KnowledgeBase
    conversations: Conversations
    sources: Mapping[str, FileSource]
    file_bytes_max: int
    ledger: Ledger
    charge: Callable[[str, Usage], Usage]
    budget: Budget = NO_BUDGET


async def answer_knowledge(called: CommandCalled, shelf: KnowledgeDeps) -> str:
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


async def _scope(called: CommandCalled, shelf: KnowledgeDeps) -> Scope | None:
    snapshot = await shelf.conversations.find(called.address)
    return Scope("thread", snapshot.thread.thread_id) if snapshot else None


async def _add(called: CommandCalled, shelf: KnowledgeDeps) -> str:
    if not called.files:
        return "Attach the files that I should know. " + USAGE
    scope = await _scope(called, shelf)
    if scope is None:
        thread = await shelf.conversations.create(called.address)
        scope = Scope("thread", thread.thread_id)
    return "\n".join([await _added(file, scope, called, shelf) for file in called.files])


async def _added(
    file: IncomingFile, scope: Scope, called: CommandCalled, shelf: KnowledgeDeps
) -> str:
    name = safe_name(file.name)
    source = shelf.sources.get(called.address.platform)
    if source is None:
        return f"- `{name}`: files cannot be fetched here."
    try:
        await _check_budget(called, shelf)
        async with _paid(scope, called, shelf) as library:
            pieces = source.open(file, bytes_max=shelf.file_bytes_max)
            entry = await library.add(scope, name, pieces)
    except (AgentError, ToolError) as error:
        return f"- `{name}` was not added: {error}"
    return f"- I know `{entry.name}` now (about {entry.tokens:,} tokens)."


@asynccontextmanager
async def _paid(
    scope: Scope, called: CommandCalled, shelf: KnowledgeDeps
) -> AsyncGenerator[KnowledgeBase, None]:
    """The library, whose vectors are booked to who asks, also where adding fails half-way."""
    used: list[tuple[str, Usage]] = []
    try:
        yield shelf.library.reporting_usage_to(
            lambda model, usage: used.append((model, shelf.charge(model, usage)))
        )
    finally:
        if used:
            await shelf.ledger.book(
                used, thread_id=scope.owner_id, at=called.address, by=called.person
            )


async def _check_budget(called: CommandCalled, shelf: KnowledgeDeps) -> None:
    """Raises BudgetExceeded where no more may be spent. What has no vectors costs nothing."""
    if shelf.library.semantics is None or not shelf.budget.is_set:
        return
    since = utc_day_start(datetime.now(UTC))
    spent = await shelf.ledger.spending_by(called.person, called.address, since=since)
    if (why := exhausted_message(replace(shelf.budget, run=NO_LIMIT), spent)) is not None:
        raise BudgetExceeded(why)


async def _list(called: CommandCalled, shelf: KnowledgeDeps) -> str:
    scope = await _scope(called, shelf)
    entries = await shelf.library.store.entries([scope]) if scope else ()
    if not entries:
        return "I know no files here yet. " + USAGE
    lines = [
        f"- `{entry.name}` (about {entry.tokens:,} tokens)" for entry in entries[:ENTRIES_SHOWN_MAX]
    ]
    if len(entries) > ENTRIES_SHOWN_MAX:
        lines.append(f"- and {len(entries) - ENTRIES_SHOWN_MAX} more")
    return "\n".join(lines)


async def _remove(called: CommandCalled, shelf: KnowledgeDeps, name: str) -> str:
    scope = await _scope(called, shelf)
    if not name or scope is None:
        return USAGE
    removed = await shelf.library.remove(scope, name)
    return f"I have forgotten `{removed.name}`." if removed else f"I know no file named `{name}`."
