"""The files that agents know: read into the library when they are new or have changed, and taken out when gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.agents.files import AgentFiles
from core.domain.errors import DocumentError
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import Scope
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0
"""How long a run waits for files to be read; the reading goes on beside it."""
FILES_MAX = 200
_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Source:
    """`name` is the path relative to the definition; the rest tells whether the file has changed."""

    name: str
    path: Path
    modified_ns: int
    size_bytes: int


class AgentKnowledgeSync:
    """Keeps what the library knows for each agent true to its files."""

    def __init__(self, files: AgentFiles, library: KnowledgeBase) -> None:
        self._files = files
        self._library = library
        self._read: dict[str, tuple[_Source, ...]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    def warm(self) -> None:
        """Starts to read what all agents are to know, and returns at once."""
        for agent_id, agent in self._files.latest.items():
            if agent.knowledge:
                self._begin(agent_id)

    async def learn(self, agent_id: str) -> None:
        """Returns when the agent knows its files as they are now, or after WAIT_SECONDS. Raises StorageUnavailable."""
        task = self._begin(agent_id)
        done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if done:
            task.result()
        else:
            log.warning("the files of the agent %s are still being read", agent_id)

    async def close(self) -> None:
        for task in tuple(self._reading.values()):
            await cancel(task)

    def _begin(self, agent_id: str) -> asyncio.Task[None]:
        task = self._reading.get(agent_id)
        if task is None:
            task = spawn(self._bring_up_to_date(agent_id), name=f"knowledge of {agent_id}")
            self._reading[agent_id] = task
            task.add_done_callback(lambda _task: self._reading.pop(agent_id, None))
        return task

    async def _bring_up_to_date(self, agent_id: str) -> None:
        folder, agent = self._files.knowledge_folder(agent_id), self._files.latest.get(agent_id)
        if folder is None or agent is None:
            return
        sources = await asyncio.to_thread(lambda: tuple(_sources(folder, agent.knowledge)))
        if self._read.get(agent_id) == sources:
            return
        scope = Scope("agent", agent_id)
        kept = {entry_id for one in sources if (entry_id := await self._added(scope, one))}
        names = {one.name for one in sources}
        for entry in await self._library.store.entries([scope]):
            if entry.entry_id not in kept and entry.name not in names:
                await self._library.store.remove(scope, entry.entry_id)
        self._read[agent_id] = sources

    async def _added(self, scope: Scope, source: _Source) -> str | None:
        try:
            entry = await self._library.add(scope, source.name, _pieces(source.path))
        except (DocumentError, OSError) as error:
            log.warning("%s cannot know %s: %s", scope.owner_id, source.name, error)
            return None
        return entry.entry_id


def _sources(folder: Path, names: tuple[str, ...]) -> Iterator[_Source]:
    """Files in a stable order, each once. What leads out of the folder, or is hidden in one, is left out."""
    home, left = folder.resolve(), FILES_MAX
    seen: set[Path] = set()
    for name in names:
        place = folder / name
        if not place.exists():
            log.warning("the knowledge %s of the agents in %s is not there", name, folder.name)
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = path.relative_to(place).parts
            is_fit = path.is_file() and path.resolve().is_relative_to(home)
            if not is_fit or path in seen or any(part.startswith(".") for part in inside):
                continue
            if not left:
                log.warning("an agent knows no more than %d files; %s is left out", FILES_MAX, path)
                return
            left -= 1
            seen.add(path)
            held = path.stat()
            yield _Source(path.relative_to(folder).as_posix(), path, held.st_mtime_ns, held.st_size)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
