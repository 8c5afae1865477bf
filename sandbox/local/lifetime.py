"""The life of local jails: stopped when nobody uses them, their files packed after a while, unpacked when needed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from core.domain.errors import SandboxUnavailable
from core.tasks import cancel, spawn
from sandbox.lifecycle import Patience, next_step
from sandbox.local.archive import BrokenArchive, NotPacked, Packer
from sandbox.local.jail import Jail
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.machines import Machines

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


class LocalLife:
    """`news` is what the next run of a thread must be told. `packer` raises SandboxUnavailable."""

    def __init__(
        self,
        machines: Machines,
        workspaces: Workspaces,
        patience: Patience,
        now: Callable[[], float],
        packer: Callable[[], Awaitable[Packer]],
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
        except BrokenArchive:
            log.exception("the archive of thread %s is not whole; it is put aside", thread_id)
            await asyncio.to_thread(workspace.start_anew)
            self.news[thread_id] = FILES_LOST
        except (NotPacked, OSError) as error:
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
            except (NotPacked, OSError, SandboxUnavailable) as error:
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
