"""Keeps at most one running sandbox per thread: starts it, finds it again, replaces it when it is lost, stops it."""

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

from core.domain.errors import SandboxesBusy, SandboxUnavailable
from core.failpoints import Failpoint
from core.observability import SandboxOccupancy
from sandbox.client.connection import Connection
from sandbox.client.sandbox_client import Network, SandboxClient

WAIT_SECONDS_MAX = 1.0


class StartLimiter:
    """Limits how many sandboxes start at a time, first come, first served.

    If twenty start together on two cores, all are ready only at the end. Two at a time, they are ready after half that
    time on average. A caller that has waited `wait_seconds_max` proceeds without a slot, so that a start that hangs
    does not block others for long."""

    def __init__(self, slots_max: int, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self._slots = asyncio.Semaphore(slots_max)
        self._wait_seconds_max = wait_seconds_max

    @asynccontextmanager
    async def acquire_slot(self) -> AsyncGenerator[None]:
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
NOT_STARTED = "The sandbox could not be started. Try again, or ask the operator of this bot."
FENCE_SECONDS = 30.0
GIVEN_UP_SECONDS = 5.0  # after its last attempt, a thread no longer counts as waiting
THREAD_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")

log = logging.getLogger(__name__)


class RunningSandbox(Protocol):
    """A started sandbox. `stop` ends it and every process in it, and may be called twice."""

    @property
    def connection(self) -> Connection: ...

    @property
    def is_remote(self) -> bool:
        """Whether another process runs it. Stopping it then only closes the connection."""
        ...

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
        most: int = 0,
        network: Callable[[str], Network | None] = lambda _thread_id: None,
    ) -> None:
        """`on_lost` is called with a sandbox that ended by itself, when its thread opens it again. `link` asks the
        provider for the address of a port. `network` returns the network of a thread, or None if its connections are
        not judged. `starts_at_once` limits concurrent starts; None means no limit. `most` is how many may run at a
        time; 0 means no limit."""
        self._most = most
        self._starting: set[str] = set()
        self._held_by_runs: set[str] = set()
        self._used_at: dict[str, float] = {}
        self._waiting: dict[str, tuple[float, float]] = {}
        """By thread: when it was first refused a sandbox, and when it was last refused one."""
        self._start = start
        self._on_lost = on_lost
        self._link = link
        self._network = network
        self._turnstile = None if starts_at_once is None else StartLimiter(starts_at_once)
        self._running: dict[str, RunningSandbox] = {}
        self._fences: dict[str, int] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """Returns the thread's running sandbox, or starts one.

        A run (with a fence above 0) holds the sandbox until `release`. If the limit of running sandboxes is reached,
        the one that was not used for the longest time is stopped. Raises SandboxUnavailable, and SandboxesBusy if runs
        hold all of them."""
        check_thread_id(thread_id)
        async with self._lock(thread_id):
            machine = await self._find_running(thread_id, fence)
            if machine is None:
                machine = await self._start_with_room(thread_id, fence)
            self._used_at[thread_id] = time.monotonic()
            if fence:
                self._held_by_runs.add(thread_id)
        return SandboxClient(
            machine.connection,
            fence=fence,
            stop=lambda: self.stop(thread_id, machine),
            link=partial(self._link, machine) if self._link else None,
            network=self._network(thread_id),
        )

    def release(self, thread_id: str) -> None:
        """Notes that the thread's run has ended, so that the sandbox may be stopped if another thread needs room."""
        self._held_by_runs.discard(thread_id)
        machine = self.find(thread_id)
        if machine is not None and machine.is_remote:
            machine.connection.send_hello(0)
            self._fences[thread_id] = 0  # the next run holds it again

    def occupancy(self) -> SandboxOccupancy:
        now = time.monotonic()
        self._forget_waiting(now)
        return SandboxOccupancy(
            running=len(self._own_threads()),
            most=self._most,
            waiting=len(self._waiting),
            longest_wait_seconds=now - min(self._waiting.values(), default=(now,))[0],
        )

    async def stop(
        self, thread_id: str, machine: RunningSandbox | None = None, *, unused_since: float = math.inf
    ) -> None:
        """Stops the thread's sandbox; if `machine` is given, only if it is still the thread's, and was not opened after
        `unused_since`, in `time.monotonic`."""
        async with self._lock(thread_id):
            running = self._running.get(thread_id)
            is_meant = machine is None or running is machine
            is_due = self._used_at.get(thread_id, 0.0) <= unused_since
            if running is not None and is_meant and is_due:
                await self._stop(thread_id, running)

    async def close(self) -> None:
        starting_or_stopping = {thread for thread, lock in self._locks.items() if lock.locked()}
        await asyncio.gather(*map(self.stop, {*self._running, *starting_or_stopping}))

    @asynccontextmanager
    async def keep_stopped(self, thread_id: str) -> AsyncGenerator[bool]:
        """Context manager: yields whether no sandbox runs for the thread; inside the block, none is started."""
        async with self._lock(thread_id):
            yield thread_id not in self._running

    def find(self, thread_id: str) -> RunningSandbox | None:
        """Returns the thread's running sandbox, or None if there is none or its connection is lost."""
        machine = self._running.get(thread_id)
        return None if machine is None or machine.connection.is_lost else machine

    async def remove_if_lost(self, thread_id: str) -> None:
        """Removes the thread's sandbox if its connection is lost, unless the thread is just being opened or stopped."""
        machine, lock = self._running.get(thread_id), self._lock(thread_id)
        if machine is not None and machine.connection.is_lost and not lock.locked():
            async with lock:
                await self._remove_lost(thread_id, machine)

    def running_by_thread(self) -> dict[str, RunningSandbox]:
        return {thread_id: machine for thread_id, machine in self._running.items() if not machine.connection.is_lost}

    def lost_sandboxes(self) -> list[RunningSandbox]:
        """Returns sandboxes whose connection is lost, until their thread opens another."""
        return [machine for machine in self._running.values() if machine.connection.is_lost]

    def _lock(self, thread_id: str) -> asyncio.Lock:
        return self._locks.setdefault(thread_id, asyncio.Lock())

    async def _find_running(self, thread_id: str, fence: int) -> RunningSandbox | None:
        machine = self._running.get(thread_id)
        if machine is None:
            return None
        try:
            if not machine.connection.is_lost and fence > self._fences[thread_id]:
                await machine.connection.call("fence", answer_seconds=FENCE_SECONDS, is_housekeeping=True, fence=fence)
                self._fences[thread_id] = fence
        except SandboxUnavailable as error:
            log.warning("the sandbox of thread %s is lost: %s", thread_id, error.detail)
        if not machine.connection.is_lost:
            return machine
        await self._remove_lost(thread_id, machine)
        return None

    async def _remove_lost(self, thread_id: str, machine: RunningSandbox) -> None:
        # what another process ends between runs did not end by itself
        if self._on_lost is not None and (thread_id in self._held_by_runs or not machine.is_remote):
            self._on_lost(thread_id, machine)
        await self._stop(thread_id, machine)

    async def _start_with_room(self, thread_id: str, fence: int) -> RunningSandbox:
        try:
            await self._make_room()
            self._starting.add(thread_id)
            async with self._turnstile.acquire_slot() if self._turnstile else nullcontext():
                with OPEN:
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
        except SandboxesBusy:
            self._forget_waiting(now := time.monotonic())
            self._waiting[thread_id] = self._waiting.get(thread_id, (now,))[0], now
            raise
        finally:
            self._starting.discard(thread_id)
        self._waiting.pop(thread_id, None)
        return machine

    async def _make_room(self) -> None:
        """Stops the longest idle sandboxes until another one may start. Raises SandboxesBusy."""
        while self._most and len(self._own_threads()) + len(self._starting) >= self._most:
            idle = [thread_id for thread_id in self._own_threads() if self._is_idle(thread_id)]
            if not idle:
                raise SandboxesBusy(f"All {self._most} sandboxes of this machine are in use.")
            chosen = min(idle, key=lambda thread_id: self._used_at[thread_id])
            async with self._lock(chosen):
                if self._is_idle(chosen):
                    log.info("the idle sandbox of thread %s is stopped to make room", chosen)
                    await self._stop(chosen, self._running[chosen])

    def _own_threads(self) -> list[str]:
        """Returns the threads whose sandboxes this process runs."""
        return [thread_id for thread_id, machine in self._running.items() if not machine.is_remote]

    def _is_idle(self, thread_id: str) -> bool:
        machine = self._running.get(thread_id)
        if machine is None or thread_id in self._held_by_runs:
            return False
        return not (machine.connection.is_busy or machine.connection.is_held)

    def _forget_waiting(self, now: float) -> None:
        """Forgets the threads that no longer ask for a sandbox."""
        for thread_id, (_, refused_at) in tuple(self._waiting.items()):
            if now - refused_at > GIVEN_UP_SECONDS:
                del self._waiting[thread_id]

    async def _stop(self, thread_id: str, machine: RunningSandbox) -> None:
        self._running.pop(thread_id, None)
        self._fences.pop(thread_id, None)
        self._used_at.pop(thread_id, None)
        self._held_by_runs.discard(thread_id)
        await machine.stop()


def check_thread_id(thread_id: str) -> None:
    """Raises SandboxUnavailable if the thread id cannot be used as a folder name."""
    if THREAD_ID.fullmatch(thread_id) is None:
        raise SandboxUnavailable("This thread can have no sandbox.", detail="malformed thread id")
