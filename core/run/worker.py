"""The worker, which executes queued runs concurrently and requeues runs whose worker died."""

import asyncio
import logging
import time
from collections import deque

from core.domain.errors import StorageUnavailable
from core.ports import RunQueue
from core.run.deps import RunDeps
from core.run.execute import execute
from core.tasks import boot_seconds, cancel, spawn

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
SWEEP_SECONDS = 1.0
QUIET_SWEEPS = 10
RUNS_AT_ONCE_MAX = 200
HEARTBEAT_LATE_SECONDS = 4.0
"""A worker without a heartbeat for this many seconds is unhealthy, and other workers take over its runs."""


class Worker:
    """Executes queued runs until it is closed. Unfinished runs are then requeued, so that another worker continues
    them."""

    def __init__(
        self,
        deps: RunDeps,
        queue: RunQueue,
        *,
        runs_at_once_max: int = RUNS_AT_ONCE_MAX,
        quiet_sweep_seconds: float = 0,
    ) -> None:
        """`quiet_sweep_seconds` is the time between searches for runs without a worker while there is no work. It may
        be long if no other process shares the database."""
        self._quiet_sweep_seconds = max(quiet_sweep_seconds, SWEEP_SECONDS)
        self._deps = deps
        self._queue = queue
        self._slots = asyncio.Semaphore(runs_at_once_max)
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._background_tasks: list[asyncio.Task[None]] = []
        self._queue_failed_at = -HEARTBEAT_LATE_SECONDS
        self._beat_at = -HEARTBEAT_LATE_SECONDS
        self._line: deque[str] = deque()
        self._line_read_at = -SWEEP_SECONDS

    def start(self) -> None:
        self._background_tasks = [
            spawn(self._beat(), name="heartbeat"),
            spawn(self._sweep(), name="sweeper"),
            spawn(self._take(), name="run taker"),
        ]

    async def close(self, *, drain_seconds: float = 0.0) -> None:
        """Stops every run at the end of its current turn, or in mid-turn after `drain_seconds`, and requeues it.

        Returns when all runs are requeued and the connections to web services are closed.
        """
        await cancel(*self._background_tasks[1:])
        runs = dict(self._runs)
        self._deps.draining.set()
        if runs:
            log.info("%d runs are handed over", len(runs))
            await asyncio.wait(runs.values(), timeout=drain_seconds)
            await cancel(*runs.values())
            await asyncio.gather(*map(self._queue.put, runs))
        await cancel(*self._background_tasks[:1])
        await self._deps.web.close()

    @property
    def is_busy(self) -> bool:
        """Whether all slots are in use, so that a new run has to wait."""
        return self._slots.locked()

    def health_problem(self) -> str:
        """Returns a sentence that says why the worker is unhealthy, or an empty string if it is healthy."""
        is_failing = time.monotonic() - self._queue_failed_at < 2 * SWEEP_SECONDS
        if is_failing or not self._background_tasks or any(chore.done() for chore in self._background_tasks):
            return "It takes up no runs."
        if boot_seconds() - self._beat_at >= HEARTBEAT_LATE_SECONDS:
            return "Its heartbeat does not reach the database."
        return ""

    async def _take(self) -> None:
        while True:
            was_busy = self.is_busy
            await self._slots.acquire()
            try:
                run_id = (await self._next_in_line() if was_busy else "") or (await self._queue.get())
            except Exception:
                self._slots.release()
                self._queue_failed_at = time.monotonic()
                log.exception("the run queue failed; it is asked again")
                await asyncio.sleep(SWEEP_SECONDS)
                continue
            if run_id in self._runs:
                self._slots.release()
                continue
            self._start(run_id).add_done_callback(lambda _task: self._slots.release())

    async def _next_in_line(self) -> str:
        """Returns the next run to start of those that wait for a slot, or an empty string if none is known.

        The database returns them in a fair order. In the queue's order of arrival, one busy channel or user would hold
        up all others."""
        if time.monotonic() - self._line_read_at >= SWEEP_SECONDS:
            self._line_read_at = time.monotonic()
            try:
                self._line = deque(await self._deps.stores.claims.claimable_runs())
            except StorageUnavailable:
                self._line.clear()
        while self._line:
            if (run_id := self._line.popleft()) not in self._runs:
                return run_id
        return ""

    def _start(self, run_id: str) -> asyncio.Task[None]:
        task = spawn(self._execute(run_id), name=f"run {run_id}")
        self._runs[run_id] = task
        task.add_done_callback(lambda _task: self._runs.pop(run_id, None))
        return task

    async def _execute(self, run_id: str) -> None:
        if follower_id := (await execute(run_id, self._deps)).follower_id:
            await self._queue.put(follower_id)

    async def _beat(self) -> None:
        while True:
            try:
                await self._deps.stores.claims.heartbeat(self._deps.worker_id)
                self._beat_at = boot_seconds()
            except Exception:
                log.exception("the heartbeat failed")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _sweep(self) -> None:
        quiet_sweeps = 0
        while True:
            quiet_sweeps += 1
            try:
                # releases the leases of runs that are not executed here, e.g. because the reply to a claim was lost
                for lease in await self._deps.stores.claims.held_leases(self._deps.worker_id):
                    if lease.run_id not in self._runs:
                        log.warning("run %s is held here and not executed: it is given back", lease.run_id)
                        await self._deps.stores.claims.release(lease)
                if self.is_busy:
                    # a stopped run needs no slot: it ends without calling a model
                    for run_id in await self._deps.stores.claims.stopped_runs():
                        if run_id not in self._runs:
                            self._start(run_id)
                for run_id in await self._deps.stores.claims.claimable_runs():
                    quiet_sweeps = 0
                    if run_id not in self._runs:
                        await self._queue.put(run_id)
            except Exception:
                log.exception("the sweep failed")
            is_quiet = quiet_sweeps > QUIET_SWEEPS and not self._runs
            await asyncio.sleep(self._quiet_sweep_seconds if is_quiet else SWEEP_SECONDS)
