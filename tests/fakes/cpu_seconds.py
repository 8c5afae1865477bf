"""Measures the CPU time of work that may never end."""

import signal
import time
from collections.abc import Callable
from types import FrameType

_LOOPS = 25_000
_USUAL_SECONDS = 0.002
"""The CPU time of that many loops on a machine like those on which the bounds were set."""


def seconds_of(work: Callable[[], object], *, seconds_max: float) -> float:
    """Returns the CPU seconds of the work in this thread, the least of three tries. Ends a try that takes far too long.

    On a machine that is slower than usual, for example because neighbours share its cores, they are those of a usual
    one."""

    begun = time.thread_time()
    far_too_long = 8 * seconds_max

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if time.thread_time() - begun > far_too_long:  # the timer counts all threads
            raise TimeoutError

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, far_too_long, far_too_long)
    least = float("inf")
    try:
        for _ in range(3):
            begun = time.thread_time()
            work()
            least = min(least, time.thread_time() - begun)
            if least <= seconds_max:
                break
    except TimeoutError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return least / _slowness() if least > seconds_max else least


def _slowness() -> float:
    """Returns how many times as long as usual this machine takes just now for plain Python, at least 1."""
    begun = time.thread_time()
    for number in range(_LOOPS):
        str(number)
    return max(1.0, (time.thread_time() - begun) / _USUAL_SECONDS)
