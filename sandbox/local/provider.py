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
from sandbox.diagnostics import sandbox_unavailable
from sandbox.lifecycle import LifecyclePolicy
from sandbox.limits import LimitState, SandboxLimits
from sandbox.local import jail as bwrap
from sandbox.local import programs
from sandbox.local.egress_policy import EgressConfig
from sandbox.local.jail import Jail, JailConfig, runs_as_root, start_jail
from sandbox.local.lifecycle import ENDED_ALONE, JailLifecycle, WorkspaceArchiver
from sandbox.local.probe import ProbeResult, try_jail, try_toolbox
from sandbox.local.programs import MissingRequirement, SandboxToolbox, find_toolbox
from sandbox.local.resource_limits import Cgroups, MonitoredJail, find_cgroups, run_watchdog
from sandbox.local.shared_access import RemoteSandbox, SharedAccess
from sandbox.local.workspaces import UIDS, Workspaces
from sandbox.running_sandboxes import (
    RunningSandbox,
    RunningSandboxes,
    check_thread_id,
    usable_cores,
)

DESTROY = Failpoint("sandbox.destroy")
PATIENCE = LifecyclePolicy()
NO_SANDBOX = "This machine cannot run a sandbox."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Equipment:
    bwrap: Path
    program: Path
    python: programs.PythonInstallation
    cgroups: Cgroups | None
    toolbox: SandboxToolbox | None = None


class LocalSandboxProvider:
    """Satisfies `core.ports.SandboxProvider`. Needs `folder` to be passable for other users when started as root."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: SandboxLimits | None = None,
        egress: EgressConfig | None = None,
        patience: LifecyclePolicy = PATIENCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Without `egress` there is no way to the internet. `now` tells the time in seconds since 1970."""
        self._folder = folder.absolute()
        self._egress = egress if egress is not None and egress.policy.is_open else None
        self._limits = limits or SandboxLimits()
        self._drops_user = runs_as_root()
        self._workspaces = Workspaces(self._folder / "threads", drops_user=self._drops_user)
        self._machines = RunningSandboxes(self._start, self._lost, starts_at_once=usable_cores())
        self.life = JailLifecycle(self._machines, self._workspaces, patience, now, self._packer)
        self._doors = SharedAccess(
            self._folder / "doors", self._workspaces, self._machines.running, self._machines.stop
        )
        self._equipping = asyncio.Lock()
        self._equipment: _Equipment | None = None
        self._browser_lack = "The machine has not been tried yet."
        self._watchdog: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return "local"

    @property
    def browser_lack(self) -> str:
        """Why there is no browser in these sandboxes, in sentences for the operator; empty where there is one."""
        return self._browser_lack

    async def probe(self) -> ProbeResult:
        """Tries the full set of flags. Where they fail, `open` will too."""
        try:
            await self._equipped()
        except MissingRequirement as lacking:
            return ProbeResult(ok=False, reason=lacking.reason, remedy=lacking.remedy)
        return ProbeResult(ok=True)

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        check_thread_id(thread_id)
        self._doors.note(thread_id, fence)
        sandbox = await self._machines.open(thread_id, fence=fence)
        self.life.begin()
        await self.life.note_use(thread_id)
        if fence:
            self.life.tell_news(thread_id)
        return sandbox

    def rest(self, thread_id: str) -> None:
        del thread_id  # its files are saved as they are written

    async def destroy(self, thread_id: str) -> None:
        check_thread_id(thread_id)
        await self._machines.stop(thread_id)
        await self._doors.end_elsewhere(thread_id)
        with DESTROY:
            await asyncio.to_thread(self._workspaces.delete, thread_id)

    async def close(self) -> None:
        if self._watchdog is not None:
            await cancel(self._watchdog)
            self._watchdog = None
        await self.life.close()
        await self._doors.close()
        await self._machines.close()

    async def describe(self) -> tuple[LimitState, ...]:
        """Each limit, whether it holds here, and by what. Raises SandboxUnavailable where there are no jails."""
        equipment = await self._equipped_or_unavailable()
        limits = self._limits
        group = equipment.cgroups
        memory = (
            f"control group (version {group.version})"
            if group
            else "a look at its processes once a second"
        )
        return (
            LimitState(
                name="memory", is_active=True, how=f"{limits.memory_bytes} bytes by {memory}"
            ),
            LimitState(name="processes", is_active=True, how=f"{limits.processes} by RLIMIT_NPROC"),
            LimitState(
                name="user",
                is_active=self._drops_user,
                how="a uid of its own per jail" if self._drops_user else "the uid of this program",
            ),
            LimitState(name="open files", is_active=True, how=f"{limits.open_files} a process"),
            LimitState(
                name="disk",
                is_active=True,
                how=f"{limits.file_bytes} bytes a file; {limits.workspace_bytes} a workspace, "
                "by looking every few seconds",
            ),
            LimitState(
                name="network",
                is_active=True,
                how="none at all" if self._egress is None else "a proxy, to public addresses alone",
            ),
            LimitState(name="time", is_active=True, how=f"{limits.command_seconds:g} s a command"),
        )

    async def _start(self, thread_id: str) -> RunningSandbox:
        equipment = await self._equipped_or_unavailable()
        try:
            workspace = await self._doors.take(thread_id)
        except OSError as error:
            raise sandbox_unavailable(error, NO_SANDBOX, doing="workspace") from error
        if isinstance(workspace, RemoteSandbox):
            return workspace
        try:
            await self.life.restore(thread_id, workspace)
            jail = await start_jail(
                equipment.bwrap,
                self._plan(equipment, workspace.path),
                workspace,
                drops_user=self._drops_user,
                cgroups=equipment.cgroups,
                egress=self._egress,
            )
        except OSError as error:
            workspace.close()
            raise sandbox_unavailable(error, NO_SANDBOX, doing="bubblewrap") from error
        except BaseException:
            workspace.close()
            raise
        workspace.runs(jail.pid)
        if self._watchdog is None:
            self._watchdog = spawn(run_watchdog(self._jails, self._limits), name="sandbox watchdog")
        return jail

    def _lost(self, thread_id: str, machine: RunningSandbox) -> None:
        if isinstance(machine, Jail) and not machine.connection.was_noticed:
            self.life.news[thread_id] = ENDED_ALONE

    async def _packer(self) -> WorkspaceArchiver:
        equipment = await self._equipped_or_unavailable()
        return WorkspaceArchiver(
            executable=equipment.bwrap,
            plan=lambda folder: replace(self._plan(equipment, folder), has_proxy=False),
            drops_user=self._drops_user,
        )

    def _jails(self) -> list[MonitoredJail]:
        return [jail for jail in self._machines.running().values() if isinstance(jail, Jail)]

    def _plan(self, equipment: _Equipment, workspace: Path) -> JailConfig:
        return JailConfig(
            workspace=workspace,
            program=equipment.program,
            python=equipment.python.path,
            python_prefix=equipment.python.prefix,
            limits=self._limits,
            toolbox=equipment.toolbox,
            has_proxy=self._egress is not None,
        )

    async def _equipped_or_unavailable(self) -> _Equipment:
        try:
            return await self._equipped()
        except OSError as error:
            raise sandbox_unavailable(error, NO_SANDBOX, doing="data folder") from error
        except MissingRequirement as lacking:
            if isinstance(lacking.__cause__, OSError):
                raise sandbox_unavailable(
                    lacking.__cause__, NO_SANDBOX, doing="data folder"
                ) from lacking
            raise SandboxUnavailable(NO_SANDBOX, detail=str(lacking)) from lacking

    async def _equipped(self) -> _Equipment:
        async with self._equipping:
            if self._equipment is None:
                self._equipment = await asyncio.to_thread(self._equip)
            return self._equipment

    def _equip(self) -> _Equipment:
        place = self._folder / "programs"
        try:
            self._workspaces.prepare()
            place.mkdir(mode=0o755, exist_ok=True)
            place.chmod(0o755)
            if self._folder.stat().st_uid == os.geteuid():
                self._folder.chmod(0o711)
        except OSError as error:
            raise MissingRequirement(
                f"The data folder cannot be used: {error}.", "Choose another."
            ) from error
        blocker = programs.blocking_folder(self._folder / "threads")
        if self._drops_user and blocker is not None:
            raise MissingRequirement(
                f"The data folder lies in {blocker}, which only its owner may enter.",
                "Set THREADHAND_DATA_DIR to a folder outside of it, for example /var/lib/threadhand.",
            )
        python = programs.find_python(drops_user=self._drops_user)
        equipment = _Equipment(
            bwrap=programs.find_bwrap(place, drops_user=self._drops_user),
            program=programs.install_program(place, python.path, at=bwrap.PROGRAM_FOLDER),
            python=python,
            cgroups=find_cgroups(self._limits),
        )
        self._try(equipment)
        return self._with_toolbox(equipment)

    def _with_toolbox(self, equipment: _Equipment) -> _Equipment:
        """Tried once per version of it: that takes a second."""
        folder = self._folder / "programs"
        try:
            toolbox = find_toolbox(equipment.python, drops_user=self._drops_user)
            tried_before = folder / f"tried-{toolbox.version}-{equipment.program.name}"
            with_it = replace(equipment, toolbox=toolbox)
            if not tried_before.exists():
                tried = try_toolbox(
                    equipment.bwrap,
                    self._plan(with_it, folder),
                    toolbox,
                    uid=UIDS[-1],
                    drops_user=self._drops_user,
                )
                if not tried.ok:
                    raise MissingRequirement(tried.reason, tried.remedy)
                tried_before.touch()
        except MissingRequirement as lacking:
            self._browser_lack = str(lacking)
            return equipment
        self._browser_lack = ""
        return with_it

    def _try(self, equipment: _Equipment) -> None:
        folder = self._folder / "programs"
        result = try_jail(
            equipment.bwrap,
            self._plan(equipment, folder),
            uid=UIDS[-1],
            drops_user=self._drops_user,
        )
        if not result.ok:
            raise MissingRequirement(result.reason, result.remedy)
