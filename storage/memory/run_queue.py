"""The run queue and the stop signals of a single process."""

import asyncio


class MemoryRunQueue:
    """`core.ports.RunQueue`. A waiting run is not queued twice."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._pending: set[str] = set()

    async def put(self, run_id: str) -> None:
        if run_id not in self._pending:
            self._pending.add(run_id)
            self._waiting.put_nowait(run_id)

    async def get(self) -> str:
        run_id = await self._waiting.get()
        self._pending.discard(run_id)
        return run_id


class MemoryStopSignals:
    """`core.ports.StopSignals`."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}

    async def send(self, run_id: str) -> None:
        self.wake(run_id)

    def wake(self, run_id: str) -> None:
        for waiter in self._waiters.get(run_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        """Wakes all waiters after a signal may have been missed, so that they look at the store."""
        for run_id in tuple(self._waiters):
            self.wake(run_id)

    async def wait(self, run_id: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(run_id, set())
        waiters.add(waiter)
        try:
            await waiter
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(run_id, None)
