"""Keeps the knowledge base in sync with the knowledge files of agents."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.agents.files import AgentFiles
from core.domain.errors import DocumentError
from core.knowledge.knowledge_base import KnowledgeBase
from core.knowledge.ports import Scope
from core.tasks import cancel, spawn_awaited

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0
"""How long a run waits until knowledge files are read. After that, reading continues in the background."""
FILES_MAX = 200
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Source:
    """A knowledge file.

    `name` is its path relative to the folder of the agent definition. Size and modification time reveal changes."""

    name: str
    path: Path
    modified_ns: int
    size_bytes: int


class KnowledgeFileSync:
    """Adds new and changed knowledge files of agents to the knowledge base, and removes deleted files."""

    def __init__(self, files: AgentFiles, knowledge_base: KnowledgeBase) -> None:
        self._files = files
        self._library = knowledge_base
        self._read: dict[str, tuple[_Source, ...]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Starts reading the knowledge files of all agents in the background."""
        for agent_id, agent in self._files.latest.items():
            if agent.knowledge:
                self._start_reading(agent_id)

    async def wait_until_read(self, agent_id: str) -> None:
        """Waits until the agent's current files are read, but at most WAIT_SECONDS.

        Raises StorageUnavailable if the database cannot be used."""
        task = self._start_reading(agent_id)
        done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if done:
            task.result()
        else:
            log.warning("the files of the agent %s are still being read", agent_id)

    async def close(self) -> None:
        await cancel(*self._reading.values())

    def _start_reading(self, agent_id: str) -> asyncio.Task[None]:
        task = self._reading.get(agent_id)
        if task is None:
            task = spawn_awaited(self._sync(agent_id), name=f"knowledge of {agent_id}")
            self._reading[agent_id] = task
            task.add_done_callback(lambda _task: self._reading.pop(agent_id, None))
        return task

    async def _sync(self, agent_id: str) -> None:
        folder, agent = self._files.knowledge_folder(agent_id), self._files.latest.get(agent_id)
        if folder is None or agent is None:
            return
        sources = await asyncio.to_thread(lambda: tuple(_find_sources(folder, agent.knowledge)))
        if self._read.get(agent_id) == sources:
            return
        scope, kept, is_complete = Scope("agent", agent_id), set[str](), True
        for source in sources:
            try:
                kept.add((await self._library.add(scope, source.name, _read_chunks(source.path))).entry_id)
            except (DocumentError, OSError) as error:
                log.warning("agent %s: the knowledge file %s cannot be read: %s", agent_id, source.name, error)
                is_complete = is_complete and not isinstance(error, OSError)
        names = {source.name for source in sources}
        for entry in await self._library.store.entries([scope]):
            if entry.entry_id not in kept and entry.name not in names:
                await self._library.store.remove(scope, entry.entry_id)
        if is_complete:  # otherwise the next run tries again
            self._read[agent_id] = sources


def _find_sources(folder: Path, names: tuple[str, ...]) -> Iterator[_Source]:
    """Yields each knowledge file once, in a stable order.

    `names` are files or folders below `folder`. Skips hidden files and symbolic links that point outside the folder."""
    home, left = folder.resolve(), FILES_MAX
    seen: set[Path] = set()
    for name in names:
        place = folder / name
        if not place.exists():
            log.warning("the knowledge file %s does not exist in %s", name, folder.name)
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            inside = path.relative_to(place).parts
            is_fit = path.is_file() and path.resolve().is_relative_to(home)
            if not is_fit or path in seen or any(part.startswith(".") for part in inside):
                continue
            if not left:
                log.warning("an agent can have at most %d knowledge files; %s is skipped", FILES_MAX, path)
                return
            left -= 1
            seen.add(path)
            held = path.stat()
            yield _Source(path.relative_to(folder).as_posix(), path, held.st_mtime_ns, held.st_size)


async def _read_chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
