"""Stops idle local jails, archives their files after a while, and restores them when needed."""

import asyncio
import ctypes
import json
import logging
import os
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from sandbox.idle_sandboxes import IdleSandboxes
from sandbox.inside import workspace_archive
from sandbox.lifecycle_policy import LifecyclePolicy, next_step
from sandbox.local import jail
from sandbox.local.jail import JailConfig, start_bwrap
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.running_sandboxes import RunningSandboxes

PACK = Failpoint("sandbox.pack")
UNPACK = Failpoint("sandbox.unpack")
SECONDS_MAX = 1800.0
MEMORY_BYTES = 1 << 30
START = (
    f"import sys; sys.path.insert(0, {jail.PROGRAM_FOLDER!r}); "
    "from sandbox.inside.workspace_archive import main; main()"
)


class ArchiveFailed(Exception):
    """Packing or unpacking failed and the files are unchanged; the message is for the operator."""


class CorruptArchive(Exception):
    """The archive cannot be read completely; its files are lost."""


def sync_disk(folder: Path) -> None:
    """Makes all files on the folder's disk durable, because the host must not open those of a workspace."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "the disk cannot be synchronised")
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceArchiver:
    """Packs and unpacks a workspace in a jail of its own, because the host never opens files of a workspace. Nothing is
    deleted before its replacement is on the disk.

    `plan` returns the configuration of a jail for a workspace's folder."""

    executable: Path
    config_for: Callable[[Path], JailConfig]
    drops_user: bool

    async def pack(self, workspace: Workspace) -> None:
        """Replaces the folder by its archive. If interrupted, one of the two is complete. Raises ArchiveFailed."""
        with PACK:
            draft = workspace.archive.with_suffix(".part")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                code = await self._run("pack", workspace.path, workspace.uid, descriptor)
                if code != workspace_archive.EXIT_DONE:
                    raise ArchiveFailed(f"packing ended with {code}")
                await asyncio.to_thread(os.fsync, descriptor)
                draft.rename(workspace.archive)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            await asyncio.to_thread(sync_disk, workspace.archive.parent)
            await asyncio.to_thread(workspace.remove_folder)

    async def unpack(self, workspace: Workspace) -> None:
        """Replaces the archive by its folder. Raises CorruptArchive, ArchiveFailed."""
        with UNPACK:
            draft = await asyncio.to_thread(workspace.create_draft_folder)
            descriptor = os.open(workspace.archive, os.O_RDONLY | os.O_CLOEXEC)
            try:
                code = await self._run("unpack", draft, workspace.uid, descriptor)
            finally:
                os.close(descriptor)
            if code == workspace_archive.EXIT_CORRUPT:
                raise CorruptArchive
            if code != workspace_archive.EXIT_DONE:
                raise ArchiveFailed(f"unpacking ended with {code}")
            await asyncio.to_thread(sync_disk, draft.parent)
            draft.rename(workspace.path)
            await asyncio.to_thread(sync_disk, draft.parent)
            workspace.archive.unlink()

    async def _run(self, what: Literal["pack", "unpack"], folder: Path, uid: int, descriptor: int) -> int:
        plan = self.config_for(folder)
        limits = {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_FSIZE": plan.limits.workspace_bytes}
        with ExitStack() as stack:
            arguments_fd, descriptors = jail.write_bwrap_arguments(plan, stack)
            command = ["bwrap", "--args", str(arguments_fd), "--", str(plan.python), "-I", "-S"]
            command += ["-c", START, what, str(descriptor), json.dumps(limits)]
            process = start_bwrap(self.executable, command, [*descriptors, descriptor], uid, self.drops_user)
        try:
            return await asyncio.to_thread(process.wait, SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise ArchiveFailed(f"it took longer than {SECONDS_MAX:g} s") from error
        finally:
            process.kill()
            process.wait()


FILES_LOST = (
    "The saved files of this conversation could not be read. A fresh, empty sandbox has started: create again what "
    "is still needed."
)
NOT_RESTORED = "The saved files of this conversation cannot be restored right now. Try again later."

log = logging.getLogger(__name__)


class IdleJails(IdleSandboxes):
    """Stops idle jails, archives their files and restores them. `packer` raises SandboxUnavailable."""

    def __init__(
        self,
        machines: RunningSandboxes,
        workspaces: Workspaces,
        lifecycle_policy: LifecyclePolicy,
        now: Callable[[], float],
        packer: Callable[[], Awaitable[WorkspaceArchiver]],
    ) -> None:
        super().__init__(machines, workspaces, lifecycle_policy, now)
        self._packer = packer
        self._failed_at: dict[str, float] = {}

    async def restore(self, thread_id: str, workspace: Workspace) -> None:
        """Unpacks an archived workspace. Raises SandboxUnavailable."""
        if not workspace.is_archived:
            return
        packer = await self._packer()
        try:
            await packer.unpack(workspace)
        except CorruptArchive:
            log.exception("the archive of thread %s is corrupt; it is kept for the operator", thread_id)
            await asyncio.to_thread(workspace.set_archive_aside)
            self.leave_notice(thread_id, FILES_LOST)
        except (ArchiveFailed, OSError) as error:
            raise SandboxUnavailable(NOT_RESTORED, detail=f"{thread_id}: {error}") from error

    async def run_once(self) -> None:
        """Stops idle jails of this process and archives the workspaces that are due."""
        running = self._machines.running_by_thread()
        await super().run_once()
        for thread_id in await asyncio.to_thread(self._due_thread_ids):
            if thread_id not in running:
                await self._archive(thread_id)

    def _due_thread_ids(self) -> list[str]:
        """Returns the threads to archive. A workspace without a recorded use starts counting now."""
        due: list[str] = []
        for thread_id in self._workspaces.unpacked_thread_ids():
            last_used_at = self._workspaces.last_used_at(thread_id)
            if last_used_at is None:
                self.record_use(thread_id)
                continue
            step = next_step("stopped", self._lifecycle_policy, idle_seconds=self._now() - last_used_at)
            if step == "archive" and self._failed_at.get(thread_id) != last_used_at:
                due.append(thread_id)
        return due

    async def _archive(self, thread_id: str) -> None:
        async with self._machines.keep_stopped(thread_id) as is_stopped:
            if not is_stopped:
                return
            try:
                workspace = self._workspaces.acquire(thread_id)
            except SandboxUnavailable:
                return  # another process runs it
            except OSError as error:
                log.warning("the files of thread %s cannot be locked: %s", thread_id, error)
                return
            try:
                await (await self._packer()).pack(workspace)
            except (ArchiveFailed, OSError, SandboxUnavailable) as error:
                log.warning("the files of thread %s were not archived: %s", thread_id, error)
                self._failed_at[thread_id] = self._workspaces.last_used_at(thread_id) or 0.0
            finally:
                workspace.close()
