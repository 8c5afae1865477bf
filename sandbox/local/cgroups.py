"""Control groups, where this machine lets us make them: a hard limit on a jail's memory."""

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.limits import Limits
from sandbox.local.processes import with_descendants

ROOT = Path("/sys/fs/cgroup")
STALE_SECONDS = 300

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    path: Path

    async def remove(self) -> None:
        """Removes the group once its processes are gone; a group that stays is logged."""
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
    """A folder in which groups can be made; `limits` are the files to write into each."""

    parent: Path
    limits: tuple[tuple[str, str], ...]
    version: int

    def hold(self, pid: int, *, name: str) -> Cgroup | None:
        """Puts the process and its descendants under the limits; None (logged) where that fails."""
        path = self.parent / f"threadhand-{name}"
        try:
            path.mkdir(exist_ok=True)
            for file, value in self.limits:
                (path / file).write_text(value)
            for member in with_descendants(pid):
                (path / "cgroup.procs").write_text(str(member))
        except OSError as error:
            log.warning("no control group for jail %s: %s", name, error)
            return None
        return Cgroup(path=path)


def find_cgroups(limits: Limits) -> Cgroups | None:
    """The memory controller of this process's own group, if groups can be made under it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        found = None
        if "memory" in controllers.split(","):
            files = (("memory.limit_in_bytes", str(limits.memory_bytes)),)
            found = Cgroups(parent=ROOT / "memory" / path.lstrip("/"), limits=files, version=1)
        elif not controllers and (ROOT / "cgroup.controllers").exists():
            files = (
                ("memory.max", str(limits.memory_bytes)),
                ("memory.swap.max", "0"),
                ("memory.oom.group", "0"),
            )
            found = Cgroups(parent=ROOT / path.lstrip("/"), limits=files, version=2)
        if found is not None and _works(found):
            _sweep(found.parent)
            return found
    return None


def _works(cgroups: Cgroups) -> bool:
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


def _sweep(parent: Path) -> None:
    """Removes the groups that a killed process left; one with members cannot be removed."""
    for path in parent.glob("threadhand-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.rmdir()
