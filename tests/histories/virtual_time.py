"""An event loop whose clock jumps to the next timer, and processes inside it that can be killed and frozen."""

import asyncio
import heapq
import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import time_machine

from core.domain import ids

ResultT = TypeVar("ResultT")
ParamsT = ParamSpec("ParamsT")
EPOCH_SECONDS = 1_800_000_000
CLOCK_SKEW_MILLISECONDS_MAX = 5_000
STEP_SECONDS = 1e-6
"""What one pass over the ready callbacks takes, so that no clock stands still."""
PASSES_MAX = 400_000
_process: ContextVar["SimulatedProcess | None"] = ContextVar("simulated_process", default=None)


class SimulatedProcess:
    """Everything that tasks started by `start` do, with the tasks and callbacks that they start in turn.

    A killed process executes nothing more, not even a `finally`. A frozen one continues where it was. Its system clock
    is ahead of the others' by `clock_ahead_seconds`.
    """

    def __init__(self, loop: "VirtualTimeLoop", name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.clock_ahead_seconds = 0.0
        self.waiting: list[asyncio.Handle] = []
        self._loop = loop
        self._context = Context()
        self._context.run(_process.set, self)

    def start(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        return self._loop.create_task(work, context=self._context.copy())

    def kill(self) -> None:
        self.is_alive = False
        self.waiting.clear()

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        self._loop.resume(self.waiting)
        self.waiting = []


def current_process() -> SimulatedProcess | None:
    return _process.get()


class _Task(asyncio.Task[ResultT]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, *arguments: Any, number: int, **named: Any) -> None:
        self._number = number
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their virtual times. Threads, sockets and signals do not exist here."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self.now = 0.0
        self.passes = 0
        self.shift: Callable[[float], None] = lambda _seconds: None
        self._numbers = 0
        self._tasks: list[asyncio.Task[Any]] = []
        super().__init__()
        self.set_task_factory(self._new_task)
        self._clock_resolution = STEP_SECONDS

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        return _Future(self._numbers, loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Calls the function at once, in place of a thread."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Calls `act` outside all processes, so that it happens even if they are killed or frozen."""
        self.call_later(seconds, act, context=Context())

    def resume(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def forget_everything(self) -> None:
        """Drops all tasks without a word about those that have not ended."""
        for task in self._tasks:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010 - asyncio has no public switch
            if task.done() and not task.cancelled():
                task.exception()
        self._ready.clear()
        self._scheduled.clear()
        self._tasks.clear()
        self.close()

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        self._numbers += 1
        task: asyncio.Task[Any] = _Task(work, loop=loop, context=context, number=self._numbers)
        self._tasks.append(task)  # a killed task must not be collected, which would run its `finally`
        return task

    def _run_once(self) -> None:
        self.passes += 1
        if self.passes > PASSES_MAX:
            raise AssertionError(f"the history does not end: {PASSES_MAX} passes")
        ready, scheduled, before = self._ready, self._scheduled, self.now
        if not ready:
            self.now = max(self.now, self._next_time())
        self.now += STEP_SECONDS
        self.shift(self.now - before)
        while scheduled and scheduled[0].when() <= self.now:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                self._run_in_process(handle)

    def _next_time(self) -> float:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        if not self._scheduled:
            raise AssertionError("nothing is left to happen")
        return self._scheduled[0].when()

    def _run_in_process(self, handle: asyncio.Handle) -> None:
        process: SimulatedProcess | None = handle._context.get(_process)
        if process is None or (process.is_alive and not process.is_frozen):
            if ahead := process.clock_ahead_seconds if process else 0.0:
                self.shift(ahead)
                handle._run()
                self.shift(-ahead)
            else:
                handle._run()
        elif process.is_alive:
            process.waiting.append(handle)

    def _write_to_self(self) -> None:
        return

    def _process_events(self, event_list: Any) -> None:
        return


class _CountedIds:
    """Makes UUIDv7 from the virtual clock and a counter."""

    def __init__(self) -> None:
        self._count = 0

    def uuid7(self) -> uuid.UUID:
        self._count += 1
        # each id is of a clock of its own, so that nothing can be told from the order of ids
        skew = self._count * 2_654_435_761 % CLOCK_SKEW_MILLISECONDS_MAX
        milliseconds = int(time.time() * 1000) + skew
        return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | self._count)


@contextmanager
def virtual_time(seed: int, epoch_seconds: float = EPOCH_SECONDS) -> Generator[VirtualTimeLoop, None, None]:
    """Context manager: inside the block all clocks show virtual time, and ids and random numbers follow the seed."""
    loop = VirtualTimeLoop()
    monotonic, system, makes_ids = time.monotonic, time.clock_gettime, ids.uuid_utils
    chances = random.getstate()
    random.seed(seed)
    with time_machine.travel(epoch_seconds, tick=False) as travel:
        loop.shift = travel.shift
        time.monotonic = loop.time
        time.clock_gettime = lambda _clock: loop.time()
        ids.uuid_utils = _CountedIds()
        asyncio.set_event_loop(loop)
        try:
            yield loop
        finally:
            loop.forget_everything()
            asyncio.set_event_loop(None)
            time.monotonic, time.clock_gettime = monotonic, system
            ids.uuid_utils = makes_ids
            random.setstate(chances)


def in_virtual_time(test: Callable[ParamsT, Coroutine[Any, Any, None]]) -> Callable[ParamsT, None]:
    """Decorator: plays an asynchronous test in virtual time."""

    @wraps(test)
    def play(*arguments: ParamsT.args, **named: ParamsT.kwargs) -> None:
        with virtual_time(1) as loop:
            loop.run_until_complete(test(*arguments, **named))

    return play


class TraceLog(logging.Handler):
    """Passes the program's own log lines on, with the process that wrote them."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        error = record.exc_info[1] if record.exc_info else None
        detail = f": {type(error).__name__}: {error}" if error else ""
        self._note(f"{process.name if process else 'nobody'} logs: {record.getMessage()}{detail}")
