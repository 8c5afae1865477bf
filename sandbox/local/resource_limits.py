"""Enforces the memory and disk limits of jails: with control groups if possible, and with a watchdog."""

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from core.domain.errors import SandboxUnavailable, ToolError
from sandbox.client.connection import Connection
from sandbox.limits import SandboxLimits
from sandbox.local.processes import child_pids, process_memory_bytes, process_tree

log = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
STALE_SECONDS = 300


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
    """A folder in which groups can be created; `limits` are the files to write in each group."""

    parent: Path
    limits: tuple[tuple[str, str], ...]
    version: int

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
        if found is not None and _is_usable(found):
            _remove_stale_groups(found.parent)
            return found
    return None


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


def _remove_stale_groups(parent: Path) -> None:
    """Removes groups left by killed processes. A group with members cannot be removed and stays."""
    for path in parent.glob("threadhand-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.rmdir()


INTERVAL_SECONDS = 1.0
DISK_INTERVAL_SECONDS = 4.0
DISK_SHARE = 20  # measuring the disk takes at most a twentieth of the time
NAME_BYTES = 4096
OWN_PROCESSES = 3  # bubblewrap outside, its init, the program inside


class MonitoredJail(Protocol):
    """A jail as the watchdog sees it."""

    @property
    def connection(self) -> Connection: ...
    @property
    def pid(self) -> int: ...
    @property
    def folder(self) -> Path: ...
    @property
    def has_cgroup(self) -> bool: ...


@dataclass(slots=True)
class _DiskState:
    next_check: float = 0.0
    is_full: bool = False


async def run_watchdog(jails: Callable[[], list[MonitoredJail]], limits: SandboxLimits) -> None:
    """Runs until cancelled."""
    disks: dict[int, _DiskState] = {}
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        running = jails()
        disks = {jail.pid: disks.get(jail.pid, _DiskState()) for jail in running}
        unlimited = [jail for jail in running if not jail.has_cgroup]
        children = await asyncio.to_thread(child_pids) if unlimited else {}
        for jail in unlimited:
            with suppress(SandboxUnavailable, ToolError):  # lost: the next use reports it
                await enforce_memory_limit(jail, limits, children)
        for jail in running:
            with suppress(SandboxUnavailable, ToolError):
                await _enforce_disk_limit(jail, limits, disks[jail.pid])


async def enforce_memory_limit(
    jail: MonitoredJail, limits: SandboxLimits, children: dict[int, list[int]]
) -> None:
    """Kills the largest process of a jail that exceeds its memory limit."""
    members = process_tree(jail.pid, children)
    sizes = {pid: await asyncio.to_thread(process_memory_bytes, pid) for pid in members}
    if sum(sizes.values()) <= limits.memory_bytes or len(members) <= OWN_PROCESSES:
        return
    largest = max(members[OWN_PROCESSES:], key=lambda pid: sizes[pid])
    log.warning("jail %s is over its memory limit; its largest process is killed", jail.pid)
    with suppress(ProcessLookupError):
        os.kill(largest, signal.SIGKILL)
    text = f"killed: the sandbox's memory of {limits.memory_bytes >> 20} MB was used up"
    await jail.connection.call("tell", text=text)


async def _enforce_disk_limit(jail: MonitoredJail, limits: SandboxLimits, disk: _DiskState) -> None:
    started = time.monotonic()
    if started < disk.next_check:
        return
    used, free = await asyncio.to_thread(disk_usage, jail.folder)
    now = time.monotonic()
    disk.next_check = now + max(DISK_INTERVAL_SECONDS, DISK_SHARE * (now - started))
    message = disk_full_message(used, free, limits)
    if bool(message) != disk.is_full:
        disk.is_full = bool(message)
        await jail.connection.call("quota", full_message=message)
    if message:
        log.warning("jail %s fills the disk; its commands are stopped", jail.pid)
        await jail.connection.call("tell", text=f"stopped: {message}")
        await jail.connection.call("interrupt")


def disk_full_message(used: int, free: int, limits: SandboxLimits) -> str:
    """Returns why nothing more may be written, or an empty string."""
    if used > limits.workspace_bytes:
        return (
            f"The workspace holds {used >> 20} MB, more than the {limits.workspace_bytes >> 20} MB "
            "allowed; delete something first."
        )
    if free < limits.disk_free_bytes_min:
        return "The disk of this machine is nearly full; delete something first."
    return ""


def disk_usage(folder: Path) -> tuple[int, int]:
    """Returns the bytes that the folder takes, without following links, and the bytes free on its disk.

    Each entry counts at least 4096 bytes, because it takes one of a limited number of inodes.
    """
    used = 0
    for _, folders, files, descriptor in os.fwalk(folder, onerror=None):
        for name in (*folders, *files):
            with suppress(OSError):  # removed meanwhile
                taken = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * 512
                used += max(taken, NAME_BYTES)
    disk = os.statvfs(folder)
    return used, disk.f_bavail * disk.f_frsize
