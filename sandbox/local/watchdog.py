"""Ends jails that exceed a limit that the kernel does not hold for us, and keeps a reserve of disk space and memory.

Counting is later than the kernel: a jail can exceed a limit until the next check. Checks are frequent where little is
left, and cost little while nothing changes: a jail cannot have grown if the machine's free space and memory have not
shrunk since it was measured. So a jail that is not used is measured rarely, unless they shrink by half of what its
limits leave it."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from core.domain.errors import SandboxUnavailable, ToolError
from core.tasks import cancel, spawn
from sandbox.client.connection import Connection
from sandbox.limits import MEBIBYTE, SandboxLimits
from sandbox.local.cgroups import available_memory_bytes
from sandbox.local.folder_trees import measure_folder
from sandbox.local.process_table import DESCRIPTORS_MAX, MAPS_BYTES_MAX, JailUsage, measure_jail

log = logging.getLogger(__name__)

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX, IDLE_PAUSE_SECONDS = 0.05, 0.5, 2.0
GROWTH_BYTES_PER_SECOND = 4 << 30  # shorter than a jail needs to fill memory or a disk
NOTICED_BYTES = 32 * MEBIBYTE
WRITTEN_NOTICED_BYTES = MEBIBYTE
MEASURE_SECONDS, IDLE_MEASURE_SECONDS = 5.0, 60.0  # while free space and memory have not decreased
WALK_SECONDS = 4.0
QUIET_WALK_SECONDS = 60.0
WALK_SHARE = 20  # walking through workspaces takes at most a twentieth of the time
CLEANUP_BYTES = 64 * MEBIBYTE  # that a workspace above its limit may grow while it is being cleaned up
MEMORY_FOLDERS = ("/tmp", "/dev/shm", "/home/user", "/dev", "/")  # noqa: S108 - a folder inside the jail

KEPT = "Its files are kept, its programs have ended."
OVER_DISK = (
    "The sandbox was stopped because its files took {used} MB; {most} MB are allowed. Delete what is not needed. "
    + KEPT
)
OVER_DELETED = (
    "The sandbox was stopped because its files took {used} MB, counting deleted files that programs still used; "
    "{most} MB are allowed. " + KEPT
)
OVER_MEMORY = "The sandbox was stopped because it used {used} MB of memory; {most} MB are allowed. " + KEPT
OVER_DESCRIPTORS = f"The sandbox was stopped because its programs had {DESCRIPTORS_MAX} files open. {KEPT}"
OVER_MAPPINGS = f"The sandbox was stopped because its programs had mapped too many pieces of memory. {KEPT}"
DISK_RESERVE = f"The sandbox was stopped because this machine's disk is nearly full. {KEPT}"
MEMORY_RESERVE = f"The sandbox was stopped because this machine's memory is nearly used up. {KEPT}"


class MonitoredJail(Protocol):
    """A jail as the watchdog sees it. `init_pid` is 0 before the jail's first process has started."""

    @property
    def connection(self) -> Connection: ...
    @property
    def pid(self) -> int: ...
    @property
    def init_pid(self) -> int: ...
    @property
    def workspace_path(self) -> Path: ...
    @property
    def has_cgroup(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _FreeBytes:
    """The memory and disk space that the machine has left."""

    disk: int = 0
    memory: int = 0


@dataclass(slots=True)
class _JailState:
    """`most_bytes` is what the workspace may take: a jail that starts above the limit may shrink, but not grow.

    `baseline` is the last measurement before the disk was nearly full. `failures` are those that were logged."""

    used_at: float
    measured_at: float = 0.0
    free_at_measurement: _FreeBytes = _FreeBytes()
    named_bytes: int = 0
    most_bytes: int = 0
    walked_at: float = 0.0
    next_walk: float = 0.0
    free_bytes_at_walk: int = 0
    full_message: str = ""
    usage: JailUsage | None = None
    baseline: JailUsage | None = None
    failures: set[str] = field(default_factory=set[str])


class Watchdog:
    def __init__(
        self,
        jails: Callable[[], list[MonitoredJail]],
        limits: SandboxLimits,
        folder: Path,
        end: Callable[[MonitoredJail, str], Awaitable[None]],
    ) -> None:
        """`folder` is on the same disk as the workspaces. `end` receives a sentence for the users in the thread."""
        self._jails = jails
        self._limits = limits
        self._folder = folder
        self._end_jail = end
        self._states: dict[MonitoredJail, _JailState] = {}
        self._critical_bytes = limits.disk_free_bytes_min // 2
        self._walking: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._used_at = self._next_check_at = -IDLE_PAUSE_SECONDS
        # a thread of its own, because limits must be enforced even while all shared threads are busy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="watchdog")

    def wake(self, jail: MonitoredJail) -> None:
        """Call this before each use of the jail. A new jail is checked at once. A jail that was idle is checked soon,
        as if it were busy."""
        self._used_at = time.monotonic()
        state = self._states.get(jail)
        if state is not None:
            state.used_at = self._used_at
        if state is None or self._next_check_at - self._used_at > PAUSE_SECONDS_MAX:
            self._woken.set()

    async def run(self) -> None:
        """Runs until cancelled. Sleeps while there is no jail."""
        failure = ""
        try:
            while True:
                self._woken.clear()
                try:
                    seconds = await self.check()
                except Exception as error:  # e.g. too few file descriptors
                    if repr(error) != failure:
                        log.exception("the limits of sandboxes cannot be checked")
                    failure, seconds = repr(error), PAUSE_SECONDS_MAX
                self._next_check_at = math.inf if seconds is None else time.monotonic() + seconds
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._woken.wait()
        finally:
            if self._walking is not None:
                await cancel(self._walking)

    async def check(self) -> float | None:
        """Ends the jails that exceed a limit. Returns the pause until the next check, in seconds; None if there is no
        jail to check."""
        now, before = time.monotonic(), self._states
        self._states = {jail: before.get(jail) or _JailState(now) for jail in self._jails()}
        if not self._states:
            return None
        free = _FreeBytes(free_disk_bytes(self._folder), available_memory_bytes())
        if not before:  # a jail that starts on a full disk has not filled it
            self._critical_bytes = min(self._limits.disk_free_bytes_min // 2, free.disk - NOTICED_BYTES // 4)
        spare_disk = free.disk - self._limits.disk_free_bytes_min
        spare_memory = free.memory - self._limits.memory_free_bytes_min
        for jail, state in self._states.items():
            if jail.connection.is_busy:
                state.used_at = self._used_at = now
        is_short = min(spare_disk, spare_memory) < 0
        if due := [jail for jail, state in self._states.items() if is_short or self._is_due(jail, state, free)]:
            await self._measure(due, free)
        await self._end_jails_over_limits()
        if spare_disk < 0:
            await self._end_writing_jails(free.disk)
        else:
            self._critical_bytes = self._limits.disk_free_bytes_min // 2
            for state in self._states.values():
                state.baseline = state.usage
        if spare_memory < 0:
            sizes = {jail: state.usage.memory_bytes for jail, state in self._states.items() if state.usage}
            if sizes:
                await self._end(max(sizes, key=sizes.__getitem__), MEMORY_RESERVE)
        self._walk_where_due(free.disk)
        longest = PAUSE_SECONDS_MAX if now - self._used_at < IDLE_PAUSE_SECONDS else IDLE_PAUSE_SECONDS
        seconds = min(spare_disk, spare_memory) / GROWTH_BYTES_PER_SECOND
        return min(longest, max(PAUSE_SECONDS_MIN, seconds))

    def _is_due(self, jail: MonitoredJail, state: _JailState, free: _FreeBytes) -> bool:
        """Whether to measure the jail. After each use it is measured often until it has been measured once, and rarely
        from then on, unless it may have used half of what its limits leave it."""
        usage, before = state.usage, state.free_at_measurement
        if usage is None:
            return True
        most_bytes = state.most_bytes or self._limits.workspace_bytes
        disk_left = most_bytes - state.named_bytes - usage.deleted_bytes
        memory_left = math.inf if jail.has_cgroup else self._limits.memory_bytes - usage.memory_bytes
        is_idle = state.measured_at - state.used_at > IDLE_PAUSE_SECONDS
        return (
            before.disk - free.disk > max(NOTICED_BYTES, disk_left / 2)
            or before.memory - free.memory > max(NOTICED_BYTES, memory_left / 2)
            or time.monotonic() - state.measured_at > (IDLE_MEASURE_SECONDS if is_idle else MEASURE_SECONDS)
        )

    async def _measure(self, jails: list[MonitoredJail], free: _FreeBytes) -> None:
        inits = {jail: jail.init_pid for jail in jails}
        measured = await asyncio.get_running_loop().run_in_executor(self._thread, _measure_jails, inits)
        now = time.monotonic()
        for jail, found in measured.items():
            state = self._states[jail]
            state.measured_at, state.free_at_measurement = now, free
            if isinstance(found, Exception):
                _log_once(jail, state, "what its programs use", found)
            else:
                state.usage = found

    async def _end_jails_over_limits(self) -> None:
        for jail, state in tuple(self._states.items()):
            if state.usage is not None and (sentence := self._excess(jail, state, state.usage)):
                await self._end(jail, sentence)

    def _excess(self, jail: MonitoredJail, state: _JailState, usage: JailUsage) -> str:
        limits = self._limits
        used = state.named_bytes + usage.deleted_bytes
        if used > (state.most_bytes or limits.workspace_bytes):
            text = OVER_DELETED if usage.deleted_bytes else OVER_DISK
            return text.format(used=used >> 20, most=limits.workspace_bytes >> 20)
        if usage.memory_bytes > limits.memory_bytes and not jail.has_cgroup:
            return OVER_MEMORY.format(used=usage.memory_bytes >> 20, most=limits.memory_bytes >> 20)
        if usage.maps_bytes > MAPS_BYTES_MAX:
            return OVER_MAPPINGS
        return OVER_DESCRIPTORS if usage.descriptors >= DESCRIPTORS_MAX else ""

    async def _end_writing_jails(self, free_bytes: int) -> None:
        """Ends the jails that have written to the disk since it became nearly full. If the disk still fills up, ends
        all jails, because files can be held in ways that are not counted."""
        is_critical = free_bytes < self._critical_bytes
        if is_critical:
            self._critical_bytes = free_bytes - NOTICED_BYTES // 4
        for jail, state in tuple(self._states.items()):
            state.baseline = state.baseline or state.usage
            if is_critical or _written_bytes(state) > WRITTEN_NOTICED_BYTES:
                await self._end(jail, DISK_RESERVE)
            else:
                self._set_full_message(jail, state, free_bytes)

    async def _end(self, jail: MonitoredJail, sentence: str) -> None:
        self._states.pop(jail, None)
        log.warning("the jail in %s is ended: %s", jail.workspace_path, sentence)
        await self._end_jail(jail, sentence)

    def _walk_where_due(self, free_bytes: int) -> None:
        if self._walking is not None and not self._walking.done():
            return
        now = time.monotonic()
        due = {
            jail: state
            for jail, state in self._states.items()
            if now >= state.next_walk
            and (
                state.full_message
                or state.free_bytes_at_walk - free_bytes > NOTICED_BYTES
                or now - state.walked_at > QUIET_WALK_SECONDS
                or not state.walked_at
            )
        }
        if due:
            self._walking = spawn(self._walk(due, free_bytes), name="sizes of workspaces")

    async def _walk(self, due: dict[MonitoredJail, _JailState], free_bytes: int) -> None:
        for jail, state in due.items():
            started = time.monotonic()
            try:
                size = await asyncio.to_thread(measure_folder, jail.workspace_path)
                used = size.named_bytes
                if size.unread:  # an unreadable part has not become smaller
                    used = max(used, state.named_bytes)
                    _log_once(jail, state, "the size of some folders", OSError("unreadable or moved"))
                state.walked_at = time.monotonic()
                state.named_bytes, state.free_bytes_at_walk = used, free_bytes
                limit = self._limits.workspace_bytes
                allowed = used + CLEANUP_BYTES if used > limit else limit
                state.most_bytes = min(state.most_bytes or allowed, allowed)
                self._set_full_message(jail, state, free_bytes)
            except Exception as error:  # whatever one jail does, the others are still counted
                _log_once(jail, state, "the size of its files", error)
            now = time.monotonic()
            state.next_walk = now + max(WALK_SECONDS, WALK_SHARE * (now - started))

    def _set_full_message(self, jail: MonitoredJail, state: _JailState, free_bytes: int) -> None:
        """Tells the program inside why it must refuse to write files; an empty text allows it again."""
        message = disk_full_message(state.named_bytes, free_bytes, self._limits)
        if message != state.full_message:
            state.full_message = message
            # not awaited, because a stopped program inside would block the limits of all other sandboxes
            spawn(_tell_full(jail, message), name="full disk")


async def _tell_full(jail: MonitoredJail, message: str) -> None:
    with suppress(SandboxUnavailable, ToolError):  # the connection is lost, and the next use reports that
        await jail.connection.call("quota", is_housekeeping=True, full_message=message)


def _measure_jails(inits: dict[MonitoredJail, int]) -> dict[MonitoredJail, JailUsage | Exception]:
    """Returns for each jail that has started what its programs use, or why that could not be measured."""
    found: dict[MonitoredJail, JailUsage | Exception] = {}
    for jail, init in inits.items():
        try:
            if init:
                found[jail] = measure_jail(init, MEMORY_FOLDERS)
        except Exception as error:  # whatever one jail does, the others are still measured
            found[jail] = error
    return found


def _log_once(jail: MonitoredJail, state: _JailState, what: str, error: Exception) -> None:
    if what not in state.failures:
        state.failures.add(what)
        log.warning("%s of the jail in %s is unknown", what, jail.workspace_path, exc_info=error)


def _written_bytes(state: _JailState) -> int:
    """Returns the bytes that the running processes have written to a disk since the baseline."""
    if state.usage is None or state.baseline is None:
        return 0
    before = state.baseline.written
    return sum(max(0, count - before.get(pid, 0)) for pid, count in state.usage.written.items())


def disk_full_message(used: int, free: int, limits: SandboxLimits) -> str:
    """Returns why no more may be written, or an empty string."""
    if used > limits.workspace_bytes:
        return (
            f"The workspace holds {used >> 20} MB, more than the {limits.workspace_bytes >> 20} MB "
            "allowed; delete something first."
        )
    if free < limits.disk_free_bytes_min:
        return "The disk of this machine is nearly full; delete something first."
    return ""


def free_disk_bytes(folder: Path) -> int:
    """Returns the bytes that an unprivileged program may still write to the folder's disk."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
