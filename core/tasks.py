"""Background tasks whose errors are logged, and blocks of code that a stop request can end."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from types import TracebackType
from typing import TypeVar, cast

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)
_running: set[asyncio.Task[object]] = set()


def spawn(work: Coroutine[object, object, ResultT], *, name: str) -> asyncio.Task[ResultT]:
    """Starts the work in a task of its own. An error is logged once with its traceback."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[object]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the task %s failed", task.get_name(), exc_info=error)


async def cancel(task: asyncio.Task[ResultT]) -> None:
    """Cancels the task and waits until it has ended, however it ends."""
    task.cancel()
    await asyncio.wait([task])


class Stopped(Exception):
    """A person asked for the run to stop."""


class StopSwitch:
    """Ends every `stoppable` block that is active when it is turned on, or that is entered later. Stays on."""

    def __init__(self) -> None:
        self._inside: set[Stoppable] = set()
        self.is_on = False

    def turn_on(self) -> None:
        self.is_on = True
        for block in tuple(self._inside):
            block.interrupt()

    def stoppable(self) -> "Stoppable":
        """`async with switch.stoppable():` raises Stopped out of the block as soon as the switch is on."""
        return Stoppable(self, self._inside)


class Stoppable:
    """Works like `asyncio.timeout`: cancels the current task and turns that one cancellation into `Stopped`."""

    def __init__(self, switch: StopSwitch, inside: "set[Stoppable]") -> None:
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
        self._inside.add(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside.discard(self)
        if not self._was_interrupted or self._task is None:
            return
        still_cancelled = self._task.uncancel() > self._cancelling_before
        if kind is asyncio.CancelledError and not still_cancelled:
            raise Stopped from error

    def interrupt(self) -> None:
        if self._task is not None and not self._was_interrupted:
            self._was_interrupted = True
            self._task.cancel()


async def unwrap_exception_group(work: Awaitable[None]) -> None:
    """Awaits the work. If it raises an ExceptionGroup, raises the first exception in the group instead."""
    try:
        await work
    except BaseExceptionGroup as group:
        raise _leaf(group) from group


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _leaf(cast(BaseExceptionGroup[BaseException], first))
    return first
