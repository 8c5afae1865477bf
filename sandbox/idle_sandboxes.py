"""Stops idle sandboxes of this machine, and keeps what the next run of a thread is told about its sandbox."""

import asyncio
import logging
import time
from collections.abc import Callable

from core.domain.errors import SandboxUnavailable
from core.tasks import cancel, repeat, spawn
from sandbox.lifecycle_policy import LifecyclePolicy, next_step
from sandbox.local.workspaces import Workspaces
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes

ROUND_SECONDS = 30.0
ENDED_ALONE = "The sandbox ended unexpectedly. A new one has started with the same files; running processes were lost."

log = logging.getLogger(__name__)


class IdleSandboxes:
    """Stops the sandboxes of this process that no process of the machine has used for long. Their files are kept."""

    def __init__(
        self,
        machines: RunningSandboxes,
        workspaces: Workspaces,
        lifecycle_policy: LifecyclePolicy,
        now: Callable[[], float],
    ) -> None:
        self._machines = machines
        self._workspaces = workspaces
        self._lifecycle_policy = lifecycle_policy
        self._now = now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            work = repeat(self.run_once, ROUND_SECONDS, "checking the sandboxes failed")
            self._task = spawn(work, name="stop idle sandboxes")

    async def close(self) -> None:
        if self._task is not None:
            await cancel(self._task)
            self._task = None

    def record_use(self, thread_id: str) -> None:
        try:
            self._workspaces.record_use(thread_id, self._now())
        except OSError as error:
            log.warning("the use of thread %s's sandbox was not recorded: %s", thread_id, error)

    def note_unexpected_end(self, thread_id: str, machine: RunningSandbox) -> None:
        """Leaves a notice for the thread if its sandbox ended by itself and no call has failed because of that."""
        if not machine.connection.loss_was_reported:
            self.leave_notice(thread_id, ENDED_ALONE, replaces_older=False)

    def leave_notice(self, thread_id: str, notice: str, *, replaces_older: bool = True) -> None:
        """Leaves a message for the thread's next run, in whichever process it runs."""
        try:
            self._workspaces.leave_notice(thread_id, notice, replaces_older=replaces_older)
        except OSError as error:
            log.warning("thread %s will not be notified (%s): %s", thread_id, error, notice)

    def raise_pending_notice(self, thread_id: str) -> None:
        """Raises SandboxUnavailable once if there is a notice for the thread; the next call succeeds."""
        try:
            notice = self._workspaces.take_notice(thread_id)
        except OSError as error:
            log.warning("the notice for thread %s was not read: %s", thread_id, error)
            return
        if notice:
            raise SandboxUnavailable(notice, detail=f"thread {thread_id}")

    async def run_once(self) -> None:
        """Stops the sandboxes that are idle now."""
        for thread_id, machine in self._machines.running_by_thread().items():
            if machine.is_remote:
                continue
            is_busy, looked_at = machine.connection.is_busy, time.monotonic()
            if is_busy:
                self.record_use(thread_id)
            # used by any process of this machine
            used_at = await asyncio.to_thread(self._workspaces.last_used_at, thread_id)
            idle_seconds = 0.0 if used_at is None else self._now() - used_at
            if next_step("started", self._lifecycle_policy, idle_seconds=idle_seconds, is_busy=is_busy) == "stop":
                await self._machines.stop(thread_id, machine, unused_since=looked_at)
