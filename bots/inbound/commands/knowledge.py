"""The chat command `knowledge`, which adds, lists and removes the knowledge files of a thread."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from bots.inbound.actions import CommandCalled, Outcome
from core.domain.budget import Budget, Ledger, find_exhausted, utc_day
from core.domain.errors import AgentError, BudgetExceeded, ToolError
from core.domain.outside_text import inline_code
from core.domain.threads import Address, IncomingFile, Person, Usage
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import KnowledgeEntry, Scope
from core.ports import FileSource
from core.stores import Conversations

ENTRIES_SHOWN_MAX = 30
ADD = "`knowledge add` with files attached makes them known in this conversation."


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeDeps:
    """Dependencies of the `knowledge` command. `charge` adds the price to the usage of an embedding model."""

    knowledge_base: KnowledgeBase
    conversations: Conversations
    sources: Mapping[str, FileSource]
    file_bytes_max: int
    ledger: Ledger
    charge: Callable[[str, Usage], Usage]
    budget: Budget


async def answer_knowledge(called: CommandCalled, deps: KnowledgeDeps) -> Outcome:
    """Adds the files that came with the command, lists those that are known, or removes one."""
    verb, _, name = called.argument.partition(" ")
    match verb:
        case "add":
            notice = await _add(called, deps)
        case "remove":
            scope = await _scope(called, deps)
            removed = await deps.knowledge_base.remove(scope, name) if scope else None
            notice = f"I have forgotten `{removed.name}`." if removed else f"I know no file named {inline_code(name)}."
        case _:
            notice = await _list(called, deps)
    return Outcome(notice=notice, is_private=False)


async def _scope(called: CommandCalled, deps: KnowledgeDeps) -> Scope | None:
    snapshot = await deps.conversations.find(called.address)
    return Scope("thread", snapshot.thread.thread_id) if snapshot else None


async def _add(called: CommandCalled, deps: KnowledgeDeps) -> str:
    if not called.files:
        return f"Attach the files that I should know: {ADD}"
    scope = await _scope(called, deps)
    if scope is None:
        thread = await deps.conversations.create(called.address)
        scope = Scope("thread", thread.thread_id)
    return "\n".join([await _add_file(file, scope, called, deps) for file in called.files])


async def _add_file(file: IncomingFile, scope: Scope, called: CommandCalled, deps: KnowledgeDeps) -> str:
    if called.address.platform not in deps.sources:
        return f"- `{file.name}`: files cannot be fetched here."
    try:
        entry = await add_knowledge(file, scope, called.address, called.person, deps)
    except (AgentError, ToolError) as error:
        return f"- `{file.name}` was not added: {error}"
    return f"- I know `{entry.name}` now (about {entry.tokens:,} tokens)."


async def add_knowledge(
    file: IncomingFile, scope: Scope, at: Address, by: Person, deps: KnowledgeDeps
) -> KnowledgeEntry:
    """Reads the file from the platform of the address and adds it to the scope.

    Raises AgentError and ToolError with a sentence for people, among others if the person's budget is used up.
    """
    await _check_budget(at, by, deps)
    async with _knowledge_base_with_billing(scope, at, by, deps) as knowledge_base:
        pieces = deps.sources[at.platform].open(file, bytes_max=deps.file_bytes_max)
        return await knowledge_base.add(scope, file.name, pieces)


@asynccontextmanager
async def _knowledge_base_with_billing(
    scope: Scope, at: Address, by: Person, deps: KnowledgeDeps
) -> AsyncGenerator[KnowledgeBase, None]:
    """Context manager: yields the knowledge base. At the end, records the cost of embeddings for the user.

    The cost is recorded even if adding a file fails.
    """
    used: list[tuple[str, Usage]] = []
    try:
        yield deps.knowledge_base.reporting_usage_to(
            lambda model, usage: used.append((model, deps.charge(model, usage)))
        )
    finally:
        if used:
            thread_id = scope.owner_id if scope.kind == "thread" else None
            await deps.ledger.book(used, thread_id=thread_id, at=at, by=by)


async def _check_budget(at: Address, by: Person, deps: KnowledgeDeps) -> None:
    """Raises BudgetExceeded if the user's budget is used up. Skips the check without embeddings, which are the cost."""
    if deps.knowledge_base.semantics is None:
        return
    since = utc_day(datetime.now(UTC))
    spent = await deps.ledger.spending_by(by, at, since=since)
    if (end := find_exhausted(deps.budget, spent)) is not None:
        raise BudgetExceeded(end.sentence)


async def _list(called: CommandCalled, deps: KnowledgeDeps) -> str:
    scope = await _scope(called, deps)
    entries = await deps.knowledge_base.store.entries([scope]) if scope else ()
    if not entries:
        return f"I know no files here yet. {ADD}"
    lines = [f"- `{entry.name}` (about {entry.tokens:,} tokens)" for entry in entries[:ENTRIES_SHOWN_MAX]]
    if len(entries) > ENTRIES_SHOWN_MAX:
        lines.append(f"- and {len(entries) - ENTRIES_SHOWN_MAX} more")
    return "\n".join(lines)
