"""The terminal of a command: its pty and its input."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from sandbox.inside.fast_stdlib import deque

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.inside.event_loop import EventLoop, Timer

INPUT_SECONDS_MAX = 5.0


class Terminal:
    """The master side of a pty. Errors after the end of its programs are ignored."""

    def __init__(self, loop: EventLoop, descriptor: int) -> None:
        self._loop = loop
        self._inputs: deque[_Input] = deque()
        self.descriptor = descriptor
        self.is_open = True
        os.set_blocking(descriptor, False)
        self._set_modes()

    @property
    def foreground(self) -> int:
        """The foreground process group; 0 if the terminal is gone."""
        try:
            return os.tcgetpgrp(self.descriptor)
        except OSError:
            return 0

    def _set_modes(self) -> None:
        """Disables echo and newline translation."""
        try:
            modes = termios.tcgetattr(self.descriptor)
            modes[0] = (modes[0] | termios.ICRNL) & ~termios.IXON
            modes[1] &= ~termios.ONLCR
            modes[3] = (modes[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
            termios.tcsetattr(self.descriptor, termios.TCSANOW, modes)
            fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        except (OSError, termios.error):
            return

    def write(self, text: bytes, done: Callable[[int], None]) -> None:
        """Types the text after earlier texts, as fast as programs read it. Calls `done` with the number of bytes that
        were not typed, at the latest after INPUT_SECONDS_MAX."""
        new = _Input(memoryview(text), done)
        self._inputs.append(new)
        new.timer = self._loop.call_later(INPUT_SECONDS_MAX, lambda: self._end_input(new))
        self._type()

    def drop_inputs(self) -> None:
        """Discards the text that was not typed yet."""
        while self._inputs:
            self._end_input(self._inputs[0])

    def _type(self) -> None:
        self._loop.on_writable(self.descriptor, None)
        while self._inputs:
            first = self._inputs[0]
            try:
                while first.left:
                    first.left = first.left[os.write(self.descriptor, first.left) :]
            except BlockingIOError:
                self._loop.on_writable(self.descriptor, self._type)
                return
            except OSError:
                pass  # no program is left that could read
            self._end_input(first)

    def _end_input(self, ended: _Input) -> None:
        self._inputs.remove(ended)
        if ended.timer is not None:
            ended.timer.cancel()
        ended.done(len(ended.left))

    def read(self) -> bytes | None:
        """Returns available output, nothing at the end, or None if there is none yet."""
        try:
            return os.read(self.descriptor, 65536)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.drop_inputs()
            self._loop.on_readable(self.descriptor, None)
            self._loop.on_writable(self.descriptor, None)
            os.close(self.descriptor)


class _Input:
    __slots__ = ("done", "left", "timer")

    def __init__(self, left: memoryview, done: Callable[[int], None]) -> None:
        self.left, self.done = left, done
        self.timer: Timer | None = None
