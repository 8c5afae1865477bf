"""The terminal of a shell session: its pty, the prompt markers in its stream, and the captured output."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from sandbox.inside.fast_stdlib import deque

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.inside.event_loop import EventLoop, Timer

INPUT_SECONDS_MAX = 5.0
TIOCGPTPEER = 0x5441  # not in the module termios; ioctl_tty(2)


class Terminal:
    """The master side of a pty.

    Errors after the end of the shell are ignored: the watcher of its process reports it.
    """

    def __init__(self, loop: EventLoop, descriptor: int) -> None:
        self._loop = loop
        self._inputs: deque[_Input] = deque()
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self.reset_modes()

    @property
    def foreground(self) -> int:
        """The foreground process group; 0 if the terminal is gone."""
        try:
            return os.tcgetpgrp(self.descriptor)
        except OSError:
            return 0

    def reset_modes(self) -> None:
        """Disables echo and newline translation, whatever the last command did to the terminal."""
        try:
            modes = termios.tcgetattr(self.descriptor)
            modes[0] = (modes[0] | termios.ICRNL) & ~termios.IXON
            modes[1] &= ~termios.ONLCR
            modes[3] = (modes[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
            termios.tcsetattr(self.descriptor, termios.TCSANOW, modes)
            size = struct.pack("HHHH", 50, 200, 0, 0)
            fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)
        except (OSError, termios.error):
            return

    def discard_input(self) -> None:
        """Discards input that was typed but not read, by flushing the slave side."""
        try:
            peer = fcntl.ioctl(self.descriptor, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return
        try:
            termios.tcflush(peer, termios.TCIFLUSH)
        except (OSError, termios.error):
            return
        finally:
            os.close(peer)

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
                pass  # the session has ended
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
        self.drop_inputs()
        self._loop.on_writable(self.descriptor, None)
        os.close(self.descriptor)


class _Input:
    __slots__ = ("done", "left", "timer")

    def __init__(self, left: memoryview, done: Callable[[int], None]) -> None:
        self.left, self.done = left, done
        self.timer: Timer | None = None


MARK_BYTES_MAX = 64
NUMBER_VARIABLE = "THREADHAND_LINE"  # a shell variable, not exported


class PromptMarker:
    """A marker printed by the prompt, with the last exit code, the number of the last command, and the pid of the
    shell.

    `number` is empty in a shell that has not run any of our commands."""

    __slots__ = ("exit_code", "number", "pid")

    def __init__(self, exit_code: int, number: bytes = b"", pid: bytes = b"") -> None:
        self.exit_code, self.number, self.pid = exit_code, number, pid

    def is_newer_than(self, last: PromptMarker) -> bool:
        """Whether the shell has run a command since `last`, or is another shell."""
        return (self.number, self.pid) != (last.number, last.pid)


def prompt_command(nonce: str) -> str:
    """Returns the value of PROMPT_COMMAND. It prints to /dev/tty, so that `exec >file` does not break it."""
    return rf"""printf '\033]697;{nonce};%s;%s;%s\a' $? "${{{NUMBER_VARIABLE}-}}" $$ >/dev/tty"""


class PromptMarkerParser:
    """Separates prompt markers (OSC sequences with a nonce) from output; holds back what may be an incomplete
    marker."""

    def __init__(self, nonce: str) -> None:
        self._start = f"\033]697;{nonce};".encode()
        self._held = b""

    def feed(self, piece: bytes) -> Iterator[bytes | PromptMarker]:
        text = self._held + piece
        self._held = b""
        while (start := text.find(b"\033")) >= 0:
            found = text.find(self._start, start)
            if found < 0:
                keep = overlap_bytes(text, self._start)
                yield text[: len(text) - keep]
                self._held = text[len(text) - keep :]
                return
            end = text.find(b"\a", found, found + MARK_BYTES_MAX)
            if end < 0 and len(text) - found < MARK_BYTES_MAX:
                yield text[:found]
                self._held = text[found:]
                return
            mark = _parsed(text[found + len(self._start) : end]) if end >= 0 else None
            cut = end + 1 if mark else found + 1  # looks like a marker, but is not one
            yield text[:found] if mark else text[:cut]
            if mark:
                yield mark
            text = text[cut:]
        yield text

    def flush(self) -> bytes:
        """Returns what was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _parsed(body: bytes) -> PromptMarker | None:
    parts = body.split(b";")
    if len(parts) != 3 or not (parts[0].isdigit() and parts[2].isdigit()):
        return None
    return PromptMarker(int(parts[0]), parts[1], parts[2])


def overlap_bytes(text: bytes, start: bytes) -> int:
    """Returns how many of the last bytes may be the beginning of a marker."""
    for length in range(min(len(text), len(start) - 1), 0, -1):
        if text.endswith(start[:length]):
            return length
    return 0


HEAD_BYTES = 96 * 1024
TAIL_BYTES = 160 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_BYTES_MAX = 160 * 1024 * 1024


class OutputFiles:
    """The folder with complete outputs. Deletes the oldest files when they are too large together."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: deque[CapturedOutput] = deque()

    def add(self, output: CapturedOutput) -> None:
        while self._kept and sum(kept.file_bytes for kept in self._kept) > (FILES_BYTES_MAX - FILE_BYTES_MAX):
            self._kept.popleft().delete_file()
        self._kept.append(output)


class CapturedOutput:
    def __init__(self, files: OutputFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._path = os.path.join(files.folder, name)
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._had_file = False
        self.file_bytes = 0
        self.total_bytes = 0

    def add(self, piece: bytes) -> None:
        self.total_bytes += len(piece)
        if self._file is not None:
            self._write(piece)
        room = HEAD_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if not self._had_file and len(self._tail) > TAIL_BYTES:
            self._start_file()
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    @property
    def exceeds_file_limit(self) -> bool:
        return self.total_bytes > FILE_BYTES_MAX

    def read(self) -> tuple[str, int, str | None]:
        """Returns the kept text, how many bytes are missing in its middle, and the path of the file with them."""
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total_bytes - len(self._head) - len(tail)
        if not dropped:
            return decode(self._head + tail), 0, None
        path = self._path if self.file_bytes else None
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

    def _start_file(self) -> None:
        self._had_file = True
        self._files.add(self)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._files.folder, mode=0o700, exist_ok=True)
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return  # only head and tail are kept
        self._write(bytes(self._head + self._tail))

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
