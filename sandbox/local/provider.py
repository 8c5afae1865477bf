"""The local provider: one bubblewrap jail per thread, on this machine."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from sandbox.client.sandbox_client import SandboxClient
from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.limits import LimitState, SandboxLimits, sandbox_capacity
from sandbox.local import jail as bwrap
from sandbox.local import jail_requirements
from sandbox.local.cgroups import Cgroups, find_cgroups, total_memory_bytes
from sandbox.local.egress_policy import EgressConfig
from sandbox.local.jail import Jail, JailConfig, runs_as_root, start_jail
from sandbox.local.jail_requirements import MissingRequirement
from sandbox.local.lifecycle import IdleJails, WorkspaceArchiver
from sandbox.local.probe import ProbeResult, list_installed, try_jail, try_toolbox
from sandbox.local.shared_access import SharedAccess
from sandbox.local.thread_network import ThreadNetwork
from sandbox.local.toolbox import SandboxToolbox, require_toolbox
from sandbox.local.watchdog import MonitoredJail, Watchdog
from sandbox.local.workspaces import UIDS, Workspace, Workspaces
from sandbox.os_errors import sandbox_unavailable
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes, usable_cores

DESTROY = Failpoint("sandbox.destroy")
DEFAULT_LIFECYCLE = LifecyclePolicy()
NO_SANDBOX = "This machine cannot run a sandbox."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _JailPrograms:
    bwrap: Path
    program: Path
    python: jail_requirements.PythonInstallation
    cgroups: Cgroups | None
    toolbox: SandboxToolbox | None = None


class LocalSandboxProvider:
    """Satisfies `core.ports.SandboxProvider`. As root, other users must be able to enter `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: SandboxLimits | None = None,
        egress: EgressConfig | None = None,
        lifecycle_policy: LifecyclePolicy = DEFAULT_LIFECYCLE,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Without `egress`, sandboxes have no internet access. `now` returns Unix time in seconds."""
        self._folder = folder.absolute()
        self._egress = egress if egress is not None and egress.policy.is_open else None
        self._limits = limits or SandboxLimits()
        self._drops_user = runs_as_root()
        self._workspaces = Workspaces(self._folder / "threads", drops_user=self._drops_user)
        self._machines = RunningSandboxes(
            self._start,
            self._on_lost,
            starts_at_once=usable_cores(),
            most=self._limits.sandboxes or sandbox_capacity(total_memory_bytes=total_memory_bytes()),
            network=lambda thread_id: ThreadNetwork(self._folder / "threads" / thread_id),
        )
        self.occupancy = self._machines.occupancy
        self.lifecycle = IdleJails(self._machines, self._workspaces, lifecycle_policy, now, self._packer)
        self._shared_access = SharedAccess(self._folder / "doors", self._workspaces, self._machines)
        self._preparing = asyncio.Lock()
        self._programs: _JailPrograms | None = None
        self._browser_unavailable_reason = "The machine has not been checked yet."
        self._watchdog = Watchdog(self._jails, self._limits, self._folder, self._end_over_limit)
        self._watching: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return "local"

    @property
    def browser_unavailable_reason(self) -> str:
        """Why these sandboxes have no browser, for the operator. Empty if they have one."""
        return self._browser_unavailable_reason

    async def probe(self) -> ProbeResult:
        """Runs a jail once with all flags. If that fails, `open` fails too."""
        try:
            jail_programs = await self._prepared_programs()
        except MissingRequirement as missing:
            return ProbeResult(ok=False, reason=missing.reason, remedy=missing.remedy)
        installed = await asyncio.to_thread(
            list_installed,
            jail_programs.bwrap,
            self._plan(jail_programs, self._folder / "programs"),
            uid=UIDS[-1],
            drops_user=self._drops_user,
        )
        return ProbeResult(ok=True, installed=installed)

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        sandbox = await self._shared_access.open(thread_id, fence=fence)
        if self._watching is None:
            self._watching = spawn(self._watchdog.run(), name="sandbox watchdog")
        if isinstance(jail := self._machines.find(thread_id), Jail):
            self._watchdog.wake(jail)
        self.lifecycle.start()
        self.lifecycle.record_use(thread_id)
        if fence:
            self.lifecycle.raise_pending_notice(thread_id)
        return sandbox

    def release(self, thread_id: str) -> None:
        self._machines.release(thread_id)  # its files are saved as they are written

    async def destroy(self, thread_id: str) -> None:
        await self._shared_access.stop(thread_id)
        with DESTROY:
            await asyncio.to_thread(self._workspaces.delete, thread_id)

    async def close(self) -> None:
        if self._watching is not None:
            await cancel(self._watching)
            self._watching = None
        await self.lifecycle.close()
        await self._shared_access.close()

    async def describe(self) -> tuple[LimitState, ...]:
        """Returns each limit with the mechanism that enforces it.

        Raises SandboxUnavailable if this machine has no jails."""
        group = (await self._require_programs()).cgroups
        limits = self._limits
        memory = f"{limits.memory_bytes >> 20} MiB"
        return (
            LimitState(name="memory", held_by="kernel", how=f"{memory} by a control group")
            if group
            else LimitState(name="memory", held_by="watchdog", how=f"{memory} by counting"),
            LimitState(
                name="files in memory",
                held_by="kernel",
                how=f"{limits.temporary_bytes * 3 // 2 + limits.home_bytes >> 20} MiB by their file systems",
            ),
            LimitState(name="processes", held_by="kernel", how=f"{limits.processes} by RLIMIT_NPROC"),
            LimitState(name="user", held_by="kernel", how="a separate uid for each jail")
            if self._drops_user
            else LimitState(name="user", held_by="nobody", how="the uid of this program"),
            LimitState(name="open files", held_by="kernel", how=f"{limits.open_files} a process"),
            LimitState(name="file", held_by="kernel", how=f"{limits.file_bytes >> 20} MiB"),
            LimitState(
                name="workspace",
                held_by="watchdog",
                how=f"{limits.workspace_bytes >> 20} MiB, deleted files that are open included",
            ),
            LimitState(
                name="reserve",
                held_by="watchdog",
                how=f"{limits.disk_free_bytes_min >> 20} MiB of disk, "
                f"{limits.memory_free_bytes_min >> 20} MiB of memory of the machine",
            ),
            LimitState(
                name="network",
                held_by="kernel",
                how="none at all" if self._egress is None else "a proxy to public addresses only",
            ),
            LimitState(name="time", held_by="program", how=f"{limits.command_seconds:g} s a command"),
        )

    async def _start(self, thread_id: str) -> RunningSandbox:
        jail_programs = await self._require_programs()

        async def start_in(workspace: Workspace) -> RunningSandbox:
            await self.lifecycle.restore(thread_id, workspace)
            jail = await start_jail(
                jail_programs.bwrap,
                self._plan(jail_programs, workspace.path),
                workspace,
                drops_user=self._drops_user,
                cgroups=jail_programs.cgroups,
                egress=self._egress,
            )
            workspace.record_process(jail.pid)
            return jail

        return await self._shared_access.start(thread_id, start_in, NO_SANDBOX)

    async def _end_over_limit(self, ended: MonitoredJail, sentence: str) -> None:
        """Kills the jail before anything else, because it may be filling the disk."""
        for thread_id, jail in self._machines.running_by_thread().items():
            if isinstance(jail, Jail) and jail is ended:
                jail.kill()
                jail.connection.mark_lost("over a limit", public_message=sentence)
                if not jail.connection.loss_was_reported:
                    self.lifecycle.leave_notice(thread_id, sentence)
                spawn(self._machines.stop(thread_id, jail), name=f"stop sandbox {thread_id}")

    def _on_lost(self, thread_id: str, machine: RunningSandbox) -> None:
        self.lifecycle.note_unexpected_end(thread_id, machine)

    async def _packer(self) -> WorkspaceArchiver:
        jail_programs = await self._require_programs()
        return WorkspaceArchiver(
            executable=jail_programs.bwrap,
            config_for=lambda folder: replace(self._plan(jail_programs, folder), has_proxy=False),
            drops_user=self._drops_user,
        )

    def _jails(self) -> list[MonitoredJail]:
        for machine in self._machines.lost_sandboxes():
            if isinstance(machine, Jail):
                machine.kill()  # the programs of a lost jail could keep running
        return [jail for jail in self._machines.running_by_thread().values() if isinstance(jail, Jail)]

    def _plan(self, jail_programs: _JailPrograms, workspace: Path) -> JailConfig:
        return JailConfig(
            workspace=workspace,
            program=jail_programs.program,
            python=jail_programs.python.path,
            python_prefix=jail_programs.python.prefix,
            limits=self._limits,
            toolbox=jail_programs.toolbox,
            has_proxy=self._egress is not None,
        )

    async def _require_programs(self) -> _JailPrograms:
        try:
            return await self._prepared_programs()
        except OSError as error:
            raise sandbox_unavailable(error, NO_SANDBOX, doing="data folder") from error
        except MissingRequirement as missing:
            if isinstance(missing.__cause__, OSError):
                raise sandbox_unavailable(missing.__cause__, NO_SANDBOX, doing="data folder") from missing
            raise SandboxUnavailable(NO_SANDBOX, detail=str(missing)) from missing

    async def _prepared_programs(self) -> _JailPrograms:
        async with self._preparing:
            if self._programs is None:
                self._programs = await asyncio.to_thread(self._find_programs)
            return self._programs

    def _find_programs(self) -> _JailPrograms:
        place = self._folder / "programs"
        try:
            self._workspaces.prepare()
            place.mkdir(mode=0o755, exist_ok=True)
            place.chmod(0o755)
            if self._folder.stat().st_uid == os.geteuid():
                self._folder.chmod(0o711)
        except OSError as error:
            raise MissingRequirement(f"The data folder cannot be used: {error}.", "Choose another.") from error
        blocking_folder = jail_requirements.blocking_folder(self._folder / "threads")
        if self._drops_user and blocking_folder is not None:
            raise MissingRequirement(
                f"The data folder lies in {blocking_folder}, which only its owner may enter.",
                "Set THREADHAND_DATA_DIR to a folder outside of it, for example /var/lib/threadhand.",
            )
        python = jail_requirements.require_python(drops_user=self._drops_user)
        jail_programs = _JailPrograms(
            bwrap=jail_requirements.require_bwrap(place, drops_user=self._drops_user),
            program=jail_requirements.install_program(place, python.path, at=bwrap.PROGRAM_FOLDER),
            python=python,
            cgroups=find_cgroups(self._limits),
        )
        result = try_jail(
            jail_programs.bwrap, self._plan(jail_programs, place), uid=UIDS[-1], drops_user=self._drops_user
        )
        if not result.ok:
            raise MissingRequirement(result.reason, result.remedy)
        try:
            toolbox = require_toolbox(jail_programs.python, drops_user=self._drops_user)
            tried_before = place / f"tried-{toolbox.version}-{jail_programs.program.name}"
            with_it = replace(jail_programs, toolbox=toolbox)
            if not tried_before.exists():  # trying it takes a second
                tried = try_toolbox(
                    jail_programs.bwrap, self._plan(with_it, place), toolbox, uid=UIDS[-1], drops_user=self._drops_user
                )
                if not tried.ok:
                    raise MissingRequirement(tried.reason, tried.remedy)
                tried_before.touch()
        except MissingRequirement as missing:
            self._browser_unavailable_reason = str(missing)
            return jail_programs
        self._browser_unavailable_reason = ""
        return with_it
