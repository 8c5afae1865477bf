"""The chat command `knowledge`, which adds, lists and removes the knowledge files of a thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bots.inbound.actions import CommandCalled, Outcome
from core.domain.budget import Budget, Ledger, find_exhausted, utc_day
from core.domain.errors import BudgetExceeded, RunError, ToolError
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
    """Adds the files that came with the command, lists the known files, or removes one. The outcome is private if
    nothing was added or removed."""
    verb, _, name = called.argument.partition(" ")
    match verb:
        case "add":
            return await _add_files(called, deps)
        case "remove":
            scope = await _scope(called, deps)
            if removed := await deps.knowledge_base.remove(scope, name) if scope else None:
                return Outcome(notice=f"I have forgotten `{removed.name}`.", is_private=False)
            return Outcome(notice=f"I know no file named {inline_code(name)}.")
        case _:
            scope = await _scope(called, deps)
            entries = await deps.knowledge_base.store.entries([scope]) if scope else ()
            lines = [f"- `{entry.name}` (about {entry.tokens:,} tokens)" for entry in entries[:ENTRIES_SHOWN_MAX]]
            if len(entries) > ENTRIES_SHOWN_MAX:
                lines.append(f"- and {len(entries) - ENTRIES_SHOWN_MAX} more")
            return Outcome(notice="\n".join(lines) or f"I know no files here yet. {ADD}", is_private=False)


async def _scope(called: CommandCalled, deps: KnowledgeDeps) -> Scope | None:
    snapshot = await deps.conversations.find(called.address)
    return Scope("thread", snapshot.thread.thread_id) if snapshot else None


async def _add_files(called: CommandCalled, deps: KnowledgeDeps) -> Outcome:
    if not called.files:
        return Outcome(notice=f"Attach the files that I should know: {ADD}")
    scope = await _scope(called, deps)
    if scope is None:
        thread = await deps.conversations.create(called.address)
        scope = Scope("thread", thread.thread_id)
    lines: list[str] = []
    is_changed = False
    for file in called.files:
        if called.address.platform not in deps.sources:
            lines.append(f"- `{file.name}`: files cannot be fetched here.")
            continue
        try:
            entry = await add_knowledge(file, scope, called.address, called.person, deps)
            lines.append(f"- I know `{entry.name}` now (about {entry.tokens:,} tokens).")
            is_changed = True
        except (RunError, ToolError) as error:
            lines.append(f"- `{file.name}` was not added: {error}")
    return Outcome(notice="\n".join(lines), is_private=not is_changed)


async def add_knowledge(
    file: IncomingFile, scope: Scope, at: Address, by: Person, deps: KnowledgeDeps
) -> KnowledgeEntry:
    """Reads the file from the platform of the address and adds it to the scope.

    Raises RunError or ToolError with a sentence for users, for example if the person's budget is used up."""
    if deps.knowledge_base.semantics is not None:  # only embeddings cost something
        spent = await deps.ledger.spending_by(by, at, since=utc_day(datetime.now(UTC)))
        if (end := find_exhausted(deps.budget, spent)) is not None:
            raise BudgetExceeded(end.sentence)
    used: list[tuple[str, Usage]] = []
    knowledge_base = deps.knowledge_base.reporting_usage_to(
        lambda model, usage: used.append((model, deps.charge(model, usage)))
    )
    try:
        pieces = deps.sources[at.platform].open(file, bytes_max=deps.file_bytes_max)
        return await knowledge_base.add(scope, file.name, pieces)
    finally:
        if used:  # the user pays for embeddings even if the file is not added
            thread_id = scope.owner_id if scope.kind == "thread" else None
            await deps.ledger.book_usage(used, thread_id=thread_id, at=at, by=by)
