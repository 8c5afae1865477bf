"""Background tasks whose errors are logged, and code blocks that a stop request can interrupt."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Never, TypeVar, cast

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)
_running: set[asyncio.Task[object]] = set()


def spawn(work: Coroutine[object, object, ResultT], *, name: str) -> asyncio.Task[ResultT]:
    """Starts a coroutine in a new task. If it fails, the error is logged once with its traceback."""
    task = spawn_awaited(work, name=name)
    task.add_done_callback(_log_error)
    return task


def spawn_awaited(work: Coroutine[object, object, ResultT], *, name: str) -> asyncio.Task[ResultT]:
    """Starts a coroutine in a new task that the caller awaits. Its error is raised there, and logged only by whoever
    handles it."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def shield(work: Coroutine[object, object, ResultT], *, name: str) -> ResultT:
    """Awaits a coroutine, which continues if the caller is cancelled. Raises its error, or logs the error if the caller
    was cancelled."""
    task = spawn_awaited(work, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_error)
        raise


def _log_error(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the task %s failed", task.get_name(), exc_info=error)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels all of the tasks and waits until they have ended. Their results and exceptions are ignored."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def repeat(work: Callable[[], Awaitable[object]], seconds: float, failure: str) -> Never:
    """Awaits `work` again and again, after a pause of that many seconds. Its errors are logged with `failure` and do
    not end the repetition."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as error:
            log.warning("%s: %r", failure, error)


def backoff_seconds(failures: int, *, first: float, most: float) -> float:
    """Returns the pause after this many failures in a row, which is at least one. The pause begins at `first` and
    doubles with each failure up to `most`, however many there are."""
    return min(first * 2.0 ** min(failures - 1, 100), most)


async def wait_for_first(*events: asyncio.Event) -> None:
    """Waits until any of the events is set."""
    tasks = [spawn(event.wait(), name="wait for an event") for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Waits until the event is set, or until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@contextmanager
def call_every(seconds: float, call: Callable[[], None], *, after_seconds: float) -> Generator[None]:
    """Context manager: until the block ends, calls `call` after `after_seconds`, and then at intervals of `seconds`.

    A timer costs less than a task that sleeps, which matters because each turn and each tool call has one."""
    loop = asyncio.get_running_loop()

    def call_again() -> None:
        nonlocal timer
        timer = loop.call_later(seconds, call_again)
        call()

    timer = loop.call_later(after_seconds, call_again)
    try:
        yield
    finally:
        timer.cancel()


class Stopped(Exception):
    """A person has asked the run to stop."""


class StopSwitch:
    """Interrupts code when a person stops the run. Turning the switch on ends the innermost active `stoppable` block of
    each task, and every later block on entry. An outer block ends unless the inner one handles `Stopped`. The switch
    cannot be turned off."""

    def __init__(self) -> None:
        self._inside: dict[Stoppable, asyncio.Task[object]] = {}
        self.is_on = False

    def turn_on(self) -> None:
        if not self.is_on:
            self.is_on = True
            for block in {task: block for block, task in self._inside.items()}.values():
                block.interrupt()

    def stoppable(self) -> "Stoppable":
        """Returns an async context manager that raises Stopped if the switch is on or is turned on inside the block."""
        return Stoppable(self, self._inside)


class Stoppable:
    """Async context manager like `asyncio.timeout`: cancels the current task and turns only that cancellation into
    `Stopped`."""

    def __init__(self, switch: StopSwitch, inside: "dict[Stoppable, asyncio.Task[object]]") -> None:
        self._switch = switch
        self._inside = inside
        self._task: asyncio.Task[object] | None = None
        self._cancelling_before = 0
        self._was_interrupted = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a stoppable block needs a task")
        if self._switch.is_on:
            raise Stopped
        self._cancelling_before = self._task.cancelling()
        self._inside[self] = self._task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.pop(self, None)
        if not self._was_interrupted or self._task is None:
            return
        still_cancelled = self._task.uncancel() > self._cancelling_before
        if kind is asyncio.CancelledError and not still_cancelled:
            raise Stopped from error

    def interrupt(self) -> None:
        if self._task is not None and not self._was_interrupted:
            self._was_interrupted = True
            self._task.cancel()


async def await_ungrouped(work: Awaitable[ResultT]) -> ResultT:
    """Returns the result of the work. If it raises an ExceptionGroup, raises the group's first exception instead."""
    try:
        return await work
    except BaseExceptionGroup as group:
        raise _leaf(group) from group


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _leaf(cast(BaseExceptionGroup[BaseException], first))
    return first


def boot_seconds() -> float:
    """Returns the seconds since the machine started, including the time for which it was suspended if the system counts
    that.

    On Linux, `time.monotonic` stops while a machine is suspended. A lease would then seem to be held although another
    machine has taken it over."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
