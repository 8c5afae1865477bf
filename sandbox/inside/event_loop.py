"""A small event loop: descriptors, timers and calls from threads. Importing asyncio would triple the start time."""

from __future__ import annotations

import heapq
import itertools
import os
import select
import time

from sandbox.inside.fast_stdlib import deque

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[], None]


class Timer:
    """A scheduled callback that can be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class EventLoop:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._watched: set[int] = set()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._from_threads: deque[Callback] = deque()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        self.on_readable(self._wake_out, self._run_thread_callbacks)
        self.is_running = True

    def on_readable(self, descriptor: int, callback: Callback | None) -> None:
        """Calls the callback whenever the descriptor is readable; None removes it."""
        self._set(self._readers, descriptor, callback)

    def on_writable(self, descriptor: int, callback: Callback | None) -> None:
        self._set(self._writers, descriptor, callback)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), timer))
        return timer

    def call_from_thread(self, callback: Callback) -> None:
        """Runs the callback in the loop; may be called from any thread."""
        self._from_threads.append(callback)
        try:
            os.write(self._wake_in, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so a wake-up is pending

    def run(self) -> None:
        """Runs until `is_running` is false."""
        while self.is_running:
            for descriptor, events in self._poll.poll(self._wait_seconds()):
                if events & ~select.EPOLLOUT and descriptor in self._readers:
                    self._readers[descriptor]()
                if events & ~select.EPOLLIN and descriptor in self._writers:
                    self._writers[descriptor]()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()

    def _wait_seconds(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_thread_callbacks(self) -> None:
        try:
            os.read(self._wake_out, 4096)
        except BlockingIOError:
            return
        while self._from_threads:
            self._from_threads.popleft()()

    def _set(self, table: dict[int, Callback], descriptor: int, callback: Callback | None) -> None:
        if callback is None:
            table.pop(descriptor, None)
        else:
            table[descriptor] = callback
        events = 0
        if descriptor in self._readers:
            events |= select.EPOLLIN
        if descriptor in self._writers:
            events |= select.EPOLLOUT
        if events and descriptor in self._watched:
            self._poll.modify(descriptor, events)
        elif events:
            self._poll.register(descriptor, events)
            self._watched.add(descriptor)
        elif descriptor in self._watched:
            self._watched.remove(descriptor)
            try:
                self._poll.unregister(descriptor)
            except OSError:
                pass  # already closed
