"""Control groups: a memory limit for each jail if groups can be created, and the limit of this program's own group."""

import asyncio
import logging
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.limits import SandboxLimits
from sandbox.local.process_table import process_tree

log = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
STALE_SECONDS = 300
MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file ", "total_active_file ")),
    2: ("memory.max", "memory.current", ("inactive_file ", "active_file ")),
}
"""The files of limit and usage, and the lines of memory.stat that can be reclaimed, by version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    path: Path

    async def remove(self) -> None:
        """Removes the group once its processes have ended. Logs a group that cannot be removed."""
        for _ in range(50):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return
        log.warning("the control group %s could not be removed", self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Creates control groups in `parent`. `limits` are pairs of a file in each group and the value to write to it."""

    parent: Path
    limits: tuple[tuple[str, str], ...]

    def add_process(self, pid: int, *, name: str) -> Cgroup | None:
        """Puts the process and its descendants in a group. Returns None, and logs why, if that fails."""
        path = self.parent / f"threadhand-{name}"
        try:
            path.mkdir(exist_ok=True)
            for file, value in self.limits:
                (path / file).write_text(value)
            for member in process_tree(pid):
                (path / "cgroup.procs").write_text(str(member))
        except OSError as error:
            log.warning("no control group for jail %s: %s", name, error)
            return None
        return Cgroup(path=path)


def find_cgroups(limits: SandboxLimits) -> Cgroups | None:
    """Returns the memory controller of this process's own group if groups can be created in it, else None."""
    for version, group in _own_groups():
        files = ((MEMORY_FILES[version][0], str(limits.memory_bytes)),)
        if version == 2:
            files = (*files, ("memory.swap.max", "0"), ("memory.oom.group", "0"))
        found = Cgroups(parent=group, limits=files)
        if _is_usable(found):
            # processes that were killed left their groups behind; a group that still has members cannot be removed
            for path in found.parent.glob("threadhand-*"):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_SECONDS:
                        path.rmdir()
            return found
    return None


def total_memory_bytes() -> int:
    """Returns the machine's memory, or the limit of this process's group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for version, group in _own_groups():
        with suppress(OSError, ValueError):  # no limit, or no such group here
            total = min(total, int((group / MEMORY_FILES[version][0]).read_text()))
    return total


def available_memory_bytes() -> int:
    """Returns the memory that can still be used: the machine's, or what the limit of this process's group leaves."""
    with Path("/proc/meminfo").open() as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAva"))
    for version, group in _own_groups():
        limit_file, usage_file, reclaimable = MEMORY_FILES[version]
        with suppress(OSError, ValueError):  # no limit, or no such group here
            left = int((group / limit_file).read_text()) - int((group / usage_file).read_text())
            if left < available:
                lines = (group / "memory.stat").read_text().splitlines()
                left += sum(int(line.split()[1]) for line in lines if line.startswith(reclaimable))
            available = min(available, left)
    return available


def _own_groups() -> list[tuple[int, Path]]:
    """Returns the version and the folder of each group of this process that may limit memory."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[int, Path]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found.append((1, ROOT / "memory" / path.lstrip("/")))
        elif not controllers and (ROOT / "cgroup.controllers").exists():
            found.append((2, ROOT / path.lstrip("/")))
    return found


def _is_usable(cgroups: Cgroups) -> bool:
    trial = cgroups.parent / f"threadhand-trial-{secrets.token_hex(4)}"
    try:
        trial.mkdir(exist_ok=True)
        try:
            for file, value in cgroups.limits:
                (trial / file).write_text(value)
        finally:
            trial.rmdir()
    except OSError:
        return False
    return True
