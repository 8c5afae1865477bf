"""Background tasks that are kept alive, and whose errors are logged instead of lost."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)
_running: set[asyncio.Task[object]] = set()


def spawn(work: Coroutine[object, object, ResultT], *, name: str) -> asyncio.Task[ResultT]:
    """Starts the work beside the caller. An error that nobody awaits is logged once with its traceback."""
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
