"""Once a second: the memory and the disk that each jail takes, and what is done when it is too much."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from core.domain.errors import SandboxUnavailable, ToolError
from sandbox.client.connection import Connection
from sandbox.limits import Limits
from sandbox.local.processes import children_of_all, memory_bytes, with_descendants

INTERVAL_SECONDS = 1.0
DISK_INTERVAL_SECONDS = 4.0
DISK_SHARE = 20  # looking at the disk takes at most a twentieth of the time
NAME_BYTES = 4096
OWN_PROCESSES = 3  # bubblewrap outside, its init, the program inside

log = logging.getLogger(__name__)


class Watched(Protocol):
    """A jail as the watchdog sees it."""

    @property
    def connection(self) -> Connection: ...
    @property
    def pid(self) -> int: ...
    @property
    def folder(self) -> Path: ...
    @property
    def has_memory_group(self) -> bool: ...


@dataclass(slots=True)
class _Disk:
    next_look: float = 0.0
    is_full: bool = False


async def watch(jails: Callable[[], list[Watched]], limits: Limits) -> None:
    """Runs until cancelled."""
    disks: dict[int, _Disk] = {}
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        running = jails()
        disks = {jail.pid: disks.get(jail.pid, _Disk()) for jail in running}
        unlimited = [jail for jail in running if not jail.has_memory_group]
        children = await asyncio.to_thread(children_of_all) if unlimited else {}
        for jail in unlimited:
            with suppress(SandboxUnavailable, ToolError):  # lost: its next use finds out
                await hold_memory(jail, limits, children)
        for jail in running:
            with suppress(SandboxUnavailable, ToolError):
                await _hold_disk(jail, limits, disks[jail.pid])


async def hold_memory(jail: Watched, limits: Limits, children: dict[int, list[int]]) -> None:
    """Kills the largest process of a jail that takes more than it may."""
    members = with_descendants(jail.pid, children)
    sizes = {pid: await asyncio.to_thread(memory_bytes, pid) for pid in members}
    if sum(sizes.values()) <= limits.memory_bytes or len(members) <= OWN_PROCESSES:
        return
    largest = max(members[OWN_PROCESSES:], key=lambda pid: sizes[pid])
    log.warning("jail %s is over its memory limit; its largest process is killed", jail.pid)
    with suppress(ProcessLookupError):
        os.kill(largest, signal.SIGKILL)
    text = f"killed: the sandbox's memory of {limits.memory_bytes >> 20} MB was used up"
    await jail.connection.call("tell", text=text)


async def _hold_disk(jail: Watched, limits: Limits, disk: _Disk) -> None:
    started = time.monotonic()
    if started < disk.next_look:
        return
    used, free = await asyncio.to_thread(disk_usage, jail.folder)
    now = time.monotonic()
    disk.next_look = now + max(DISK_INTERVAL_SECONDS, DISK_SHARE * (now - started))
    message = full_message(used, free, limits)
    if bool(message) != disk.is_full:
        disk.is_full = bool(message)
        await jail.connection.call("quota", full_message=message)
    if message:
        log.warning("jail %s fills the disk; its commands are stopped", jail.pid)
        await jail.connection.call("tell", text=f"stopped: {message}")
        await jail.connection.call("interrupt")


def full_message(used: int, free: int, limits: Limits) -> str:
    """Why nothing more may be written, or an empty text."""
    if used > limits.workspace_bytes:
        return (
            f"The workspace holds {used >> 20} MB, more than the {limits.workspace_bytes >> 20} MB "
            "it may; delete something first."
        )
    if free < limits.disk_free_bytes_min:
        return "The disk of this machine is nearly full; delete something first."
    return ""


def disk_usage(folder: Path) -> tuple[int, int]:
    """Bytes that the folder takes, without following links, and bytes free on its disk.

    Each name counts for something: it takes an inode, of which a disk has so many and no more.
    """
    used = 0
    for _, folders, files, descriptor in os.fwalk(folder, onerror=None):
        for name in (*folders, *files):
            with suppress(OSError):  # removed meanwhile
                taken = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * 512
                used += max(taken, NAME_BYTES)
    disk = os.statvfs(folder)
    return used, disk.f_bavail * disk.f_frsize
