"""Gives a run its thread's sandbox, which starts on first use. A slow start is shown as the run's activity."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from core.domain.errors import LeaseLost, SandboxesBusy, SandboxUnavailable
from core.domain.events import ActivityChanged
from core.loop.run_context import RunLog
from core.observability import NO_METRICS, RunMetrics
from core.ports import Sandbox, SandboxProvider
from core.tasks import cancel, spawn_awaited

TOLD_AFTER_SECONDS = 1.0
WAIT_SECONDS_MAX = 600.0
RETRY_SECONDS = 0.5
INTERRUPT_SECONDS = 2.0


class ThreadSandbox:
    """Gives one run access to its thread's sandbox. Concurrent first calls start the sandbox only once."""

    def __init__(
        self,
        provider: SandboxProvider | None,
        thread_id: str,
        fence: int,
        run_log: RunLog,
        *,
        bind: Callable[[str], None],
        metrics: RunMetrics = NO_METRICS,
    ) -> None:
        """`bind` receives the sandbox id, which equals the thread id, when the run first opens the sandbox."""
        self._provider = provider
        self._thread_id = thread_id
        self._fence = fence
        self._run_log = run_log
        self._bind = bind
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._may_hold = False
        self._was_used = False

    async def open(self) -> Sandbox:
        """Returns the running sandbox, starting it if needed. Raises SandboxUnavailable if it cannot be started."""
        if self._provider is None:
            raise SandboxUnavailable("There is no sandbox on this machine, so commands and files are off.")
        async with self._lock:
            if self._was_used:
                return await self._open(self._provider)
            with self._metrics.time_step("sandbox"):
                sandbox = await self._open(self._provider)
            self._was_used = True
            self._bind(self._thread_id)
            return sandbox

    async def _open(self, provider: SandboxProvider) -> Sandbox:
        """Waits while all sandboxes are in use. Raises SandboxUnavailable, and SandboxesBusy after a long wait."""
        try:
            return await self._open_now(provider)
        except SandboxesBusy as busy:
            self._run_log.emit(ActivityChanged(text=f"Waiting for a sandbox. {busy}"))
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                return await self._open_now(provider)
            except SandboxesBusy:
                if time.monotonic() > deadline:
                    raise

    async def _open_now(self, provider: SandboxProvider) -> Sandbox:
        self._may_hold = True  # the provider may count the run as a holder also if the opening fails
        opening = spawn_awaited(provider.open(self._thread_id, fence=self._fence), name="open the sandbox")
        try:
            done, _ = await asyncio.wait([opening], timeout=TOLD_AFTER_SECONDS)
            if not done:
                self._run_log.emit(ActivityChanged(text="Starting a sandbox"))
            return await opening
        finally:
            await cancel(opening)

    def release(self) -> None:
        """Tells the provider that this run no longer uses the sandbox, so that the provider can save its files."""
        if self._may_hold and self._provider is not None:
            self._provider.release(self._thread_id)

    async def interrupt(self) -> None:
        """Kills the commands that run in the sandbox, if this run has used it. Gives up after INTERRUPT_SECONDS."""
        if not self._was_used or self._provider is None:
            return
        with suppress(LeaseLost, SandboxUnavailable, TimeoutError):  # no command of this run is running there any more
            async with asyncio.timeout(INTERRUPT_SECONDS):
                sandbox = await self._provider.open(self._thread_id, fence=self._fence)
                await sandbox.interrupt()
