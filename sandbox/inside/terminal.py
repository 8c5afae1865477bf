"""The terminal of a command: its pty and the captured output."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from sandbox.inside.fast_stdlib import deque

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

    Sought = tuple[bytes, Callable[[], None]]

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
        """Types nothing more of what was written."""
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


HEAD_BYTES = 96 * 1024
TAIL_BYTES = 160 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_BYTES_MAX = 160 * 1024 * 1024
FILES_MAX = 200


class OutputFiles:
    """The folder with complete outputs. Deletes the oldest files when they are too many, or too large together."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: deque[CapturedOutput] = deque()

    def add(self, output: CapturedOutput) -> None:
        while self._kept and (len(self._kept) >= FILES_MAX or self._total_bytes() > FILES_BYTES_MAX - FILE_BYTES_MAX):
            self._kept.popleft().delete_file()
        self._kept.append(output)

    def _total_bytes(self) -> int:
        return sum(kept.file_bytes for kept in self._kept)


class CapturedOutput:
    """The output of a command: its first and last bytes, and all of it in a file."""

    def __init__(self, files: OutputFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._path = os.path.join(files.folder, name)
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self.file_bytes = 0
        self.total_bytes = 0
        self.bytes_before_input = 0
        self.sought: Sought | None = None

    def seek(self, text: bytes, on_found: Callable[[], None]) -> bool:
        """Returns whether the text was printed since the last input. Otherwise calls `on_found` once it is, unless
        another text is sought by then."""
        self.sought = None if text in self._end(self.total_bytes - self.bytes_before_input) else (text, on_found)
        return self.sought is None

    def _end(self, length: int) -> bytes:
        """Returns the last bytes that are kept."""
        tail = bytes(self._tail[-length:]) if length else b""
        return tail if len(tail) >= length else bytes(self._head[len(tail) - length :]) + tail

    def add(self, piece: bytes) -> None:
        if piece and not self.total_bytes:
            self._start_file()
        self.total_bytes += len(piece)
        if self._file is not None:
            self._write(piece)
        found = None
        if self.sought is not None and self.sought[0] in self._end(len(self.sought[0]) - 1) + piece:
            found, self.sought = self.sought[1], None
        room = HEAD_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        if found is not None:
            found()

    @property
    def exceeds_file_limit(self) -> bool:
        return self.total_bytes > FILE_BYTES_MAX

    def read(self, end_bytes: int | None = None) -> tuple[str, int, str | None]:
        """Returns the text in memory, how many bytes were left out in its middle, and the path of the file with all of
        it, or None.

        With `end_bytes`, returns only what was printed since the last input, at most that many of its last bytes."""
        if end_bytes is not None:
            return decode(self._end(min(end_bytes, self.total_bytes - self.bytes_before_input))), 0, None
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total_bytes - len(self._head) - len(tail)
        path = self._path if self.file_bytes else None
        if not dropped:
            return decode(self._head + tail), 0, path
        where = f"; the first {self.file_bytes} bytes are in {path}" if self.exceeds_file_limit else ""
        note = f"\n[... {dropped} bytes left out here{where} ...]\n"
        return decode(self._head) + note + decode(tail), dropped, path

    def delete_file(self) -> None:
        self.close()
        if self.file_bytes:
            self.file_bytes = 0
            remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def release(self) -> None:
        """Keeps only the file."""
        self._head.clear()
        self._tail.clear()

    def _start_file(self) -> None:
        self._files.add(self)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._files.folder, mode=0o700, exist_ok=True)
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return  # only head and tail are kept

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        try:
            self.file_bytes += os.write(self._file, piece[: FILE_BYTES_MAX - self.file_bytes])
        except OSError:
            self.close()
            return
        if self.file_bytes >= FILE_BYTES_MAX:
            self.close()


def decode(text: bytes | bytearray) -> str:
    return text.decode("utf-8", "replace")


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # a program inside has removed it
