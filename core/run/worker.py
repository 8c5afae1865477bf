"""The worker, which executes queued runs concurrently and requeues runs whose worker died."""

import asyncio
import logging
import time

from core.ports import RunQueue
from core.run.deps import RunDeps
from core.run.execute import execute
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
SWEEP_SECONDS = 1.0
RUNS_AT_ONCE_MAX = 200
AILING_SECONDS = 4.0
"""A worker without a heartbeat for this many seconds is unhealthy, and other workers take over its runs."""


class Worker:
    """Executes queued runs until it is closed. Unfinished runs are then requeued, so that another worker continues."""

    def __init__(
        self, engine: RunDeps, queue: RunQueue, *, runs_at_once_max: int = RUNS_AT_ONCE_MAX
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._slots = asyncio.Semaphore(runs_at_once_max)
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._beat_at = -AILING_SECONDS

    def start(self) -> None:
        self._chores = [
            spawn(self._beat(), name="heartbeat"),
            spawn(self._sweep(), name="sweeper"),
            spawn(self._take(), name="run taker"),
        ]

    async def close(self, *, drain_seconds: float = 0.0) -> None:
        """Stops every run at the end of its current turn, or in mid-turn after `drain_seconds`, and requeues it.

        Returns when all runs are requeued and the connections to web services are closed.
        """
        for chore in self._chores[1:]:
            await cancel(chore)
        runs = dict(self._runs)
        self._engine.draining.set()
        if runs:
            log.info("%d runs are handed over", len(runs))
            await asyncio.wait(runs.values(), timeout=drain_seconds)
            for task in runs.values():
                task.cancel()
            await asyncio.wait(runs.values())
            await asyncio.gather(*map(self._queue.put, runs))
        for chore in self._chores[:1]:
            await cancel(chore)
        await self._engine.outside.close()

    @property
    def is_busy(self) -> bool:
        """Whether all slots are in use, so that a new run has to wait."""
        return self._slots.locked()

    def ailment(self) -> str:
        """Returns a sentence that says why the worker is unhealthy, or an empty string if it is healthy."""
        if not self._chores or any(chore.done() for chore in self._chores):
            return "It takes up no runs."
        if time.monotonic() - self._beat_at >= AILING_SECONDS:
            return "Its heartbeat does not reach the database."
        return ""

    async def _take(self) -> None:
        while True:
            await self._slots.acquire()
            try:
                run_id = await self._queue.claim()
            except BaseException:
                self._slots.release()
                raise
            if run_id in self._runs:
                self._slots.release()
                continue
            task = spawn(execute(run_id, self._engine), name=f"run {run_id}")
            self._runs[run_id] = task
            task.add_done_callback(lambda _task, run_id=run_id: self._ended(run_id))

    def _ended(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._slots.release()

    async def _beat(self) -> None:
        while True:
            try:
                await self._engine.claims.heartbeat(self._engine.worker_id)
                self._beat_at = time.monotonic()
            except Exception:
                log.exception("the heartbeat failed")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _sweep(self) -> None:
        while True:
            try:
                await self._let_go()
                for run_id in await self._engine.claims.claimable_runs():
                    if run_id not in self._runs:
                        await self._queue.put(run_id)
            except Exception:
                log.exception("the sweep failed")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _let_go(self) -> None:
        """Releases leases of runs that this worker does not execute, for example if the reply to a claim was lost."""
        for lease in await self._engine.claims.held(self._engine.worker_id):
            if lease.run_id not in self._runs:
                log.warning("run %s is held here and not executed: it is given back", lease.run_id)
                await self._engine.claims.release(lease)
