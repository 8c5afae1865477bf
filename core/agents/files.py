"""Reads agent definitions from YAML files. The operator's definitions override shipped ones with the same id."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from core.agents.definition import (
    DEFAULT_AGENT,
    FILE_BYTES_MAX,
    LIST_MAX,
    AgentDefinition,
    ReferableNames,
    parse_definition,
)
from core.domain.errors import ConfigurationError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _File:
    """An agent file as last read: its problem, if any, and its last valid definition."""

    stamp: tuple[int, int, int]
    definition: AgentDefinition | None = None
    problem: str = ""


def load_shipped_definitions(known: ReferableNames) -> dict[str, AgentDefinition]:
    """Returns the definitions that are shipped with the program, by agent id."""
    found: dict[str, AgentDefinition] = {}
    for file in files("core.agents").joinpath("shipped").iterdir():
        agent_id, _, ending = file.name.rpartition(".")
        if ending == "yaml":
            text = file.read_text(encoding="utf-8")
            found[agent_id] = parse_definition(text, file=file.name, agent_id=agent_id, known=known)
    return dict(sorted(found.items()))


@dataclass(slots=True)
class AgentFiles:
    """All agent definitions: the shipped ones and those in the operator's folder.

    Changed files are read again. If a file becomes invalid, its last valid definition stays in use and the problem is
    logged once. An agent whose file was never valid is left out. So is a shipped agent that the file would replace,
    because its rights may be wider."""

    known: ReferableNames
    folder: Path | None = None
    _files: dict[Path, _File] = field(default_factory=dict[Path, _File])
    _shipped: Mapping[str, AgentDefinition] = field(default_factory=dict[str, AgentDefinition])
    _told: frozenset[str] = frozenset()
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def load(self) -> None:
        """Reads all files at start-up and logs their problems.

        Raises ConfigurationError if the folder cannot be read, or the default agent's file is invalid."""
        self._shipped = load_shipped_definitions(self.known)
        problems = self._told = self._refresh()
        if problems and (not self._files or DEFAULT_AGENT in self.left_out):
            raise ConfigurationError("\n".join(sorted(problems)))
        for problem in sorted(problems):
            log.error("%s The program starts without this agent.", problem)

    @property
    def problems(self) -> frozenset[str]:
        """A sentence for each problem of the last reading."""
        return self._told

    @property
    def left_out(self) -> frozenset[str]:
        """The ids of the agents whose files were never valid."""
        return frozenset(path.stem for path, file in self._files.items() if file.definition is None)

    async def definitions(self) -> Mapping[str, AgentDefinition]:
        """Reads changed files again and returns the definitions by agent id."""
        if self.folder is not None:
            async with self._lock:
                problems = await asyncio.to_thread(self._refresh)
                for problem in sorted(problems - self._told):
                    log.error("%s What was good before stays.", problem)
                self._told = problems
        return self.latest

    @property
    def latest(self) -> Mapping[str, AgentDefinition]:
        """The definitions by agent id, as last read, without reading changed files again."""
        own = [one.definition for one in self._files.values() if one.definition is not None]
        left_out = self.left_out
        shipped = {name: one for name, one in self._shipped.items() if name not in left_out}
        return {**shipped, **{one.agent_id: one for one in own}}

    def knowledge_folder(self, agent_id: str) -> Path | None:
        """Returns the folder that the agent's knowledge paths are relative to, or None for a shipped agent."""
        for path, file in self._files.items():
            if file.definition is not None and file.definition.agent_id == agent_id:
                return path.parent
        return None

    def _refresh(self) -> frozenset[str]:
        """Reads changed files again, and returns a sentence for each problem in the files."""
        if self.folder is None:
            return frozenset()
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix in (".yaml", ".yml"))[:LIST_MAX]
            stats = {path: path.stat() for path in paths if path.is_file()}
        except OSError as error:
            return frozenset({f"The folder {self.folder} of agents cannot be read: {error.strerror}."})
        files = dict[Path, _File]()
        for path, stat in stats.items():
            before, stamp = self._files.get(path), (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if before is None or before.stamp != stamp:
                try:
                    definition = parse_definition(_text(path), file=path.name, agent_id=path.stem, known=self.known)
                    before = _File(stamp, definition)
                except ConfigurationError as error:
                    before = _File(stamp, before.definition if before else None, str(error))
            files[path] = before
        self._files = files
        known, problems = self.latest, {file.problem for file in files.values() if file.problem}
        return frozenset(problems) | {
            f"The agent file {path.name}: team: there is no agent named {member!r}."
            for path, file in files.items()
            for member in (file.definition.team if file.definition else ())
            if member not in known
        }


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"The agent file {path.name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"The agent file {path.name} is no UTF-8 text.") from error
