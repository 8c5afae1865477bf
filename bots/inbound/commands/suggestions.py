"""Values that are suggested while a user types an option of a slash command."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from bots.inbound.actions import CommandCalled
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.schedules import list_visible_schedules
from core.domain.errors import ThreadhandError
from core.knowledge.ports import Scope
from core.tasks import spawn

log = logging.getLogger(__name__)

SUGGESTIONS_MAX = 25
VALUE_CHARACTERS_MAX = 100
SUGGEST_SECONDS_MAX = 2.0
"""Platforms wait three seconds for suggestions."""
Suggestion = tuple[str, str]
"""A value of the option, and the label that users see."""
FindValues = Callable[[CommandCalled, CommandDeps], Awaitable[Sequence[Suggestion]]]
"""Returns candidate values for what was typed (`called.argument`). The result may contain values that do not match."""


async def find_matching_values(find: FindValues, called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the values whose labels contain what was typed.

    Returns nothing if they are not found within two seconds. A sandbox that is starting continues to start."""
    finding = spawn(_find_values(find, called, deps), name="suggestions")
    await asyncio.wait({finding}, timeout=SUGGEST_SECONDS_MAX)
    typed = called.argument.strip().casefold()
    found = finding.result() if finding.done() else ()
    fitting = [
        (value, label) for value, label in found if typed in label.casefold() and len(value) <= VALUE_CHARACTERS_MAX
    ]
    return sorted(fitting, key=lambda one: not one[0].casefold().startswith(typed))[:SUGGESTIONS_MAX]


async def _find_values(find: FindValues, called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    try:
        return await find(called, deps)
    except ThreadhandError as error:
        log.info("no values can be suggested for %s: %s", called.name, error)
        return ()


async def find_agent_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns all agents."""
    agents = await deps.roster.current_definitions()
    return [(name, f"{name}: {agent.description}") for name, agent in agents.items()]


async def find_schedule_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the schedules that the person can see in this place."""
    found = await list_visible_schedules(called, deps.schedules)
    return [(one.schedule_id, f"{one.rule_in_words}: {one.task}") for one in found]


async def find_knowledge_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the knowledge files of the conversation."""
    snapshot = await deps.conversations.find(called.address)
    if snapshot is None:
        return ()
    entries = await deps.knowledge.knowledge_base.store.entries([Scope("thread", snapshot.thread.thread_id)])
    return [(entry.name, entry.name) for entry in entries]


async def find_file_values(called: CommandCalled, deps: CommandDeps) -> Sequence[Suggestion]:
    """Returns the files and folders in the workspace folder that was typed."""
    snapshot = await deps.conversations.find(called.address)
    if snapshot is None or deps.sandboxes is None:
        return ()
    sandbox = await deps.sandboxes.open(snapshot.thread.thread_id, fence=0)
    entries = await sandbox.files.list(called.argument.rpartition("/")[0] or ".")
    names = [f"{one.path}/" if one.kind == "folder" else one.path for one in entries]
    return [(name, name) for name in names if not name.startswith(".")]
