"""The life of local jails: stopped when nobody uses them, their files packed after a while, unpacked when needed."""

import asyncio
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
from core.tasks import cancel, spawn
from sandbox.inside import workspace_archive
from sandbox.lifecycle import LifecyclePolicy, next_step
from sandbox.local import jail
from sandbox.local.jail import Jail, JailConfig, start_bwrap
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
    """The files stay as they are; the text is for the operator."""


class CorruptArchive(Exception):
    """The archive is not whole, and its files are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceArchiver:
    """`plan` makes the plan of a jail for a workspace's folder."""

    executable: Path
    plan: Callable[[Path], JailConfig]
    drops_user: bool

    async def pack(self, workspace: Workspace) -> None:
        """Leaves the archive in place of the folder; cut off, one of the two is whole. Raises ArchiveFailed."""
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
            await asyncio.to_thread(workspace.remove_folder)

    async def unpack(self, workspace: Workspace) -> None:
        """Leaves the folder in place of the archive. Raises CorruptArchive, ArchiveFailed."""
        with UNPACK:
            draft = await asyncio.to_thread(workspace.make_draft)
            descriptor = os.open(workspace.archive, os.O_RDONLY | os.O_CLOEXEC)
            try:
                code = await self._run("unpack", draft, workspace.uid, descriptor)
            finally:
                os.close(descriptor)
            if code == workspace_archive.EXIT_CORRUPT:
                raise CorruptArchive
            if code != workspace_archive.EXIT_DONE:
                raise ArchiveFailed(f"unpacking ended with {code}")
            draft.rename(workspace.path)
            workspace.archive.unlink()

    async def _run(
        self, what: Literal["pack", "unpack"], folder: Path, uid: int, descriptor: int
    ) -> int:
        plan = self.plan(folder)
        limits = {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_FSIZE": plan.limits.workspace_bytes}
        with ExitStack() as stack:
            arguments_fd, descriptors = jail.write_bwrap_arguments(plan, stack)
            command = [
                "bwrap",
                "--args",
                str(arguments_fd),
                "--",
                str(plan.python),
                "-I",
                "-S",
                "-c",
                START,
            ]
            command += [what, str(descriptor), json.dumps(limits)]
            process = start_bwrap(
                self.executable, command, [*descriptors, descriptor], uid, self.drops_user
            )
        try:
            return await asyncio.to_thread(process.wait, SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise ArchiveFailed(f"it takes longer than {SECONDS_MAX:g} s") from error
        finally:
            process.kill()
            process.wait()


ROUND_SECONDS = 30.0
ENDED_ALONE = "The sandbox ended unexpectedly. A fresh one has started with the same files; what ran in it is gone."
FILES_LOST = (
    "The saved files of this conversation could not be read. A fresh, empty sandbox has started: make again what "
    "is still needed."
)
NOT_RESTORED = (
    "The saved files of this conversation cannot be brought back just now. Try again later."
)

log = logging.getLogger(__name__)


class JailLifecycle:
    """`news` is what the next run of a thread must be told. `packer` raises SandboxUnavailable."""

    def __init__(
        self,
        machines: RunningSandboxes,
        workspaces: Workspaces,
        patience: LifecyclePolicy,
        now: Callable[[], float],
        packer: Callable[[], Awaitable[WorkspaceArchiver]],
    ) -> None:
        self._machines = machines
        self._workspaces = workspaces
        self._patience = patience
        self._now = now
        self._packer = packer
        self._given_up: dict[str, float] = {}
        self._rounds: asyncio.Task[None] | None = None
        self.news: dict[str, str] = {}

    def begin(self) -> None:
        if self._rounds is None:
            self._rounds = spawn(self._repeat(), name="rounds of sandboxes")

    async def close(self) -> None:
        if self._rounds is not None:
            await cancel(self._rounds)
            self._rounds = None

    async def note_use(self, thread_id: str) -> None:
        await asyncio.to_thread(self._note_use, thread_id)

    def tell_news(self, thread_id: str) -> None:
        """Raises SandboxUnavailable once with what has happened; the call after it works."""
        told = self.news.pop(thread_id, None)
        if told is not None:
            raise SandboxUnavailable(told, detail=f"thread {thread_id}")

    async def restore(self, thread_id: str, workspace: Workspace) -> None:
        """Makes the folder of an archived workspace. Raises SandboxUnavailable."""
        if not workspace.is_archived:
            return
        packer = await self._packer()
        try:
            await packer.unpack(workspace)
        except CorruptArchive:
            log.exception("the archive of thread %s is not whole; it is put aside", thread_id)
            await asyncio.to_thread(workspace.start_anew)
            self.news[thread_id] = FILES_LOST
        except (ArchiveFailed, OSError) as error:
            raise SandboxUnavailable(NOT_RESTORED, detail=f"{thread_id}: {error}") from error

    async def make(self) -> None:
        """One round: what is due for each sandbox of this process, and for workspaces that nobody runs."""
        running = self._machines.running()
        for thread_id, machine in running.items():
            if isinstance(machine, Jail):
                await self._look(thread_id, machine)
        for thread_id in await asyncio.to_thread(self._due):
            if thread_id not in running:
                await self._archive(thread_id)

    async def _look(self, thread_id: str, jail: Jail) -> None:
        is_busy = jail.connection.is_busy
        if is_busy:
            await self.note_use(thread_id)
        used_at = await asyncio.to_thread(self._workspaces.used_at, thread_id)
        idle_seconds = self._now() - (used_at or 0.0)
        step = next_step("started", self._patience, idle_seconds=idle_seconds, is_busy=is_busy)
        if step == "stop":
            await self._machines.stop(thread_id, jail)

    def _due(self) -> list[str]:
        """The threads to archive; one whose last use nobody has noted begins to count now."""
        due: list[str] = []
        for thread_id in self._workspaces.unpacked():
            used_at = self._workspaces.used_at(thread_id)
            if used_at is None:
                self._note_use(thread_id)
                continue
            step = next_step("stopped", self._patience, idle_seconds=self._now() - used_at)
            if step == "archive" and self._given_up.get(thread_id) != used_at:
                due.append(thread_id)
        return due

    async def _archive(self, thread_id: str) -> None:
        async with self._machines.stopped(thread_id) as is_stopped:
            if not is_stopped:
                return
            try:
                workspace = self._workspaces.take(thread_id)
            except SandboxUnavailable:
                return  # another process runs it
            try:
                await (await self._packer()).pack(workspace)
            except (ArchiveFailed, OSError, SandboxUnavailable) as error:
                log.warning("the files of thread %s stay unpacked: %s", thread_id, error)
                self._given_up[thread_id] = self._workspaces.used_at(thread_id) or 0.0
            finally:
                workspace.close()

    def _note_use(self, thread_id: str) -> None:
        try:
            self._workspaces.used(thread_id, self._now())
        except OSError as error:
            log.warning("the use of thread %s's sandbox was not noted: %s", thread_id, error)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self.make()
            except OSError as error:
                log.warning("a round over the sandboxes broke off: %s", error)
