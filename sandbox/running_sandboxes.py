"""Keeps at most one running sandbox per thread: starts it, finds it again, replaces it when it is lost, stops it."""

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

WAIT_SECONDS_MAX = 1.0


class StartLimiter:
    """Limits how many sandboxes start at a time, first come, first served.

    If twenty start together on two cores, all are ready only at the end. Two at a time, they are ready after half that
    time on average. A caller that has waited `wait_seconds_max` proceeds without a slot, so that a start that hangs
    does not block others for long.
    """

    def __init__(self, slots_max: int, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self._slots = asyncio.Semaphore(slots_max)
        self._wait_seconds_max = wait_seconds_max

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        has_slot = await self._acquire_slot()
        try:
            yield
        finally:
            if has_slot:
                self._slots.release()

    async def _acquire_slot(self) -> bool:
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                return await self._slots.acquire()
        except TimeoutError:
            return False


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


OPEN = Failpoint("sandbox.open")
HELLO_SECONDS = 15.0
NOT_STARTED = "The sandbox could not be started."
FENCE_SECONDS = 30.0
THREAD_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")

log = logging.getLogger(__name__)


class RunningSandbox(Protocol):
    """A started sandbox. `stop` ends it and every process in it, and may be called twice."""

    @property
    def connection(self) -> Connection: ...

    async def on_hello(self) -> None:
        """Called once when the program inside has sent its hello, before the host sends anything."""
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
        """`on_lost` is called with a sandbox that ended by itself, when its thread opens it again. `link` asks the
        provider for the address of a port. `starts_at_once` limits concurrent starts; None means no limit."""
        self._start = start
        self._on_lost = on_lost
        self._link = link
        self._turnstile = None if starts_at_once is None else StartLimiter(starts_at_once)
        self._running: dict[str, RunningSandbox] = {}
        self._fences: dict[str, int] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """Returns the thread's running sandbox, or starts one. Raises SandboxUnavailable."""
        check_thread_id(thread_id)
        async with self._locks[thread_id]:
            machine = await self._find_running(thread_id, fence)
            if machine is None:
                async with self._turnstile.slot() if self._turnstile else nullcontext():
                    with OPEN:
                        machine = await self._start_and_greet(thread_id, fence)
        return SandboxClient(
            machine.connection,
            fence=fence,
            stop=lambda: self.stop(thread_id, machine),
            link=partial(self._link, machine) if self._link else None,
        )

    async def stop(self, thread_id: str, machine: RunningSandbox | None = None) -> None:
        """Stops the thread's sandbox; if `machine` is given, only if it is still the thread's."""
        async with self._locks[thread_id]:
            running = self._running.get(thread_id)
            if running is not None and (machine is None or running is machine):
                await self._stop(thread_id, running)

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(thread_id) for thread_id in list(self._running)))

    @asynccontextmanager
    async def hold_stopped(self, thread_id: str) -> AsyncGenerator[bool]:
        """Context manager: yields whether no sandbox runs for the thread; inside the block, none is started."""
        async with self._locks[thread_id]:
            yield thread_id not in self._running

    def running_by_thread(self) -> dict[str, RunningSandbox]:
        return {
            thread_id: machine
            for thread_id, machine in self._running.items()
            if not machine.connection.is_lost
        }

    async def _find_running(self, thread_id: str, fence: int) -> RunningSandbox | None:
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

    async def _start_and_greet(self, thread_id: str, fence: int) -> RunningSandbox:
        machine = await self._start(thread_id)
        try:
            await machine.connection.wait_for_hello(HELLO_SECONDS)
            await machine.on_hello()
            machine.connection.send_hello(fence)
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
    """Raises SandboxUnavailable if the thread id cannot be used as a folder name."""
    if THREAD_ID.fullmatch(thread_id) is None:
        raise SandboxUnavailable("This thread can have no sandbox.", detail="malformed thread id")
