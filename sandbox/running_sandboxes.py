"""One running machine per thread, whatever starts it: found again, replaced when lost, stopped once."""

import asyncio
import logging
import os
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Protocol

from core.domain.errors import SandboxUnavailable
from core.failpoints import Failpoint
from sandbox.client.connection import Connection
from sandbox.client.sandbox_client import SandboxClient

PATIENCE_SECONDS = 1.0


class StartLimiter:
    """Lets as many through at a time as there are `places`, in the order in which they came.

    Twenty that start together on two cores are all ready at the end; two by two each is, on average, in half the time,
    and works while the next ones start. Whoever has waited `patience_seconds` goes through all the same: a start that
    hangs holds nobody up for long.
    """

    def __init__(self, places: int, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._places = asyncio.Semaphore(places)
        self._patience_seconds = patience_seconds

    @asynccontextmanager
    async def passed(self) -> AsyncGenerator[None]:
        has_place = await self._place()
        try:
            yield
        finally:
            if has_place:
                self._places.release()

    async def _place(self) -> bool:
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await self._places.acquire()
        except TimeoutError:
            return False


def usable_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


OPEN = Failpoint("sandbox.open")
HELLO_SECONDS = 15.0
NOT_STARTED = "The sandbox could not be started."
FENCE_SECONDS = 30.0
THREAD_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")

log = logging.getLogger(__name__)


class RunningSandbox(Protocol):
    """A started sandbox. `stop` ends it, with every process in it, and may be called twice."""

    @property
    def connection(self) -> Connection: ...

    async def ready(self) -> None:
        """Called once when the program inside has spoken, before it is told anything."""
        ...

    async def stop(self) -> None: ...


class RunningSandboxes:
    def __init__(
        self,
        start: Callable[[str], Awaitable[RunningSandbox]],
        on_lost: Callable[[str, RunningSandbox], None] | None = None,
        link: Callable[[RunningSandbox, int], Awaitable[str | None]] | None = None,
        starts_at_once: int | None = None,
    ) -> None:
        """`on_lost` hears of a machine that has ended by itself, when its thread wants it again. `link` asks whoever
        runs the machines for an address of a port. `starts_at_once` is for those that start on this machine."""
        self._start = start
        self._on_lost = on_lost
        self._link = link
        self._turnstile = None if starts_at_once is None else StartLimiter(starts_at_once)
        self._running: dict[str, RunningSandbox] = {}
        self._fences: dict[str, int] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """The thread's machine, started or found. Raises SandboxUnavailable."""
        check_thread_id(thread_id)
        async with self._locks[thread_id]:
            machine = await self._found(thread_id, fence)
            if machine is None:
                async with self._turnstile.passed() if self._turnstile else nullcontext():
                    with OPEN:
                        machine = await self._started(thread_id, fence)
        return SandboxClient(
            machine.connection,
            fence=fence,
            stop=lambda: self.stop(thread_id, machine),
            link=partial(self._link, machine) if self._link else None,
        )

    async def stop(self, thread_id: str, machine: RunningSandbox | None = None) -> None:
        """Stops the thread's machine, or only that one if it still is the thread's."""
        async with self._locks[thread_id]:
            running = self._running.get(thread_id)
            if running is not None and (machine is None or running is machine):
                await self._stop(thread_id, running)

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(thread_id) for thread_id in list(self._running)))

    @asynccontextmanager
    async def stopped(self, thread_id: str) -> AsyncGenerator[bool]:
        """Whether no machine runs for the thread; while entered, none is started."""
        async with self._locks[thread_id]:
            yield thread_id not in self._running

    def running(self) -> dict[str, RunningSandbox]:
        return {
            thread_id: machine
            for thread_id, machine in self._running.items()
            if not machine.connection.is_lost
        }

    async def _found(self, thread_id: str, fence: int) -> RunningSandbox | None:
        machine = self._running.get(thread_id)
        if machine is None:
            return None
        try:
            if not machine.connection.is_lost and fence > self._fences[thread_id]:
                await machine.connection.call("fence", answer_seconds=FENCE_SECONDS, fence=fence)
                self._fences[thread_id] = fence
        except SandboxUnavailable as error:
            log.warning("the sandbox of thread %s is lost: %s", thread_id, error.detail)
        if not machine.connection.is_lost:
            return machine
        if self._on_lost is not None:
            self._on_lost(thread_id, machine)
        await self._stop(thread_id, machine)
        return None

    async def _started(self, thread_id: str, fence: int) -> RunningSandbox:
        machine = await self._start(thread_id)
        try:
            await machine.connection.wait_for_hello(HELLO_SECONDS)
            await machine.ready()
            machine.connection.greet(fence)
        except SandboxUnavailable as error:
            await machine.stop()
            raise SandboxUnavailable(NOT_STARTED, detail=error.detail) from error
        except BaseException:
            await machine.stop()
            raise
        self._running[thread_id], self._fences[thread_id] = machine, fence
        return machine

    async def _stop(self, thread_id: str, machine: RunningSandbox) -> None:
        self._running.pop(thread_id, None)
        self._fences.pop(thread_id, None)
        await machine.stop()


def check_thread_id(thread_id: str) -> None:
    """A thread id becomes a folder's name. Raises SandboxUnavailable for one that cannot be."""
    if THREAD_ID.fullmatch(thread_id) is None:
        raise SandboxUnavailable("This thread can have no sandbox.", detail="malformed thread id")
