"""The master side of a session's pty."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from sandbox.inside.fast_stdlib import deque

TIOCGPTPEER = 0x5441  # not in the module termios; ioctl_tty(2)


class Terminal:
    """What the shell ended or broke is met with silence here: who watches its process finds out."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self.quiet()

    @property
    def foreground(self) -> int:
        """The process group that it listens to; 0 when the terminal is gone."""
        try:
            return os.tcgetpgrp(self.descriptor)
        except OSError:
            return 0

    def quiet(self) -> None:
        """No echo, no translation, whatever the last command did to the terminal."""
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

    def forget_input(self) -> None:
        """What was typed and not read: only a flush of the other side takes that, as ours is for what is under way."""
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

    def write(self, text: bytes) -> None:
        """Raises OSError."""
        os.write(self.descriptor, text)

    def read(self) -> bytes | None:
        """What there is now; empty at the end; None when nothing has come."""
        try:
            return os.read(self.descriptor, 65536)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        os.close(self.descriptor)


TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK_BYTES_MAX = 64
NUMBER_VARIABLE = "THREADHAND_LINE"  # a variable of the shell's, not of its environment


class PromptMarker:
    """`number` is empty in a shell that has begun none of our lines."""

    __slots__ = ("exit_code", "number", "pid")

    def __init__(self, exit_code: int, number: bytes = b"", pid: bytes = b"") -> None:
        self.exit_code, self.number, self.pid = exit_code, number, pid

    def is_news_after(self, last: PromptMarker) -> bool:
        """Otherwise the same shell has begun no line of ours since, and showed its prompt for another reason."""
        return (self.number, self.pid) != (last.number, last.pid)


def prompt_command(nonce: str) -> str:
    """For PROMPT_COMMAND. To /dev/tty, so that it survives `exec >file`."""
    return rf"""printf '\033]697;{nonce};%s;%s;%s\a' $? "${{{NUMBER_VARIABLE}-}}" $$ >/dev/tty"""


class PromptMarkerParser:
    """Keeps what may be the start of a mark until the rest has come."""

    def __init__(self, nonce: str) -> None:
        self._start = f"\033]697;{nonce};".encode()
        self._held = b""

    def take(self, piece: bytes) -> Iterator[bytes | PromptMarker]:
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
            cut = end + 1 if mark else found + 1  # it may look like ours and be none
            yield text[:found] if mark else text[:cut]
            if mark:
                yield mark
            text = text[cut:]
        yield text

    def rest(self) -> bytes:
        """What was held, when nothing more will come."""
        held, self._held = self._held, b""
        return held


def _parsed(body: bytes) -> PromptMarker | None:
    parts = body.split(b";")
    if len(parts) != 3 or not (parts[0].isdigit() and parts[2].isdigit()):
        return None
    return PromptMarker(int(parts[0]), parts[1], parts[2])


def overlap_bytes(text: bytes, start: bytes) -> int:
    """How many of the last bytes may be the beginning of a mark."""
    for length in range(min(len(text), len(start) - 1), 0, -1):
        if text.endswith(start[:length]):
            return length
    return 0


HEAD_BYTES = 96 * 1024
TAIL_BYTES = 160 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_BYTES_MAX = 160 * 1024 * 1024


class OutputFiles:
    """The folder of the files; the oldest ones go when all together are too large."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: deque[CapturedOutput] = deque()

    def add(self, output: CapturedOutput) -> None:
        while self._kept and sum(kept.in_file for kept in self._kept) > (
            FILES_BYTES_MAX - FILE_BYTES_MAX
        ):
            self._kept.popleft().forget_file()
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
        self.in_file = 0
        self.total = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
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
    def is_over_cap(self) -> bool:
        return self.total > FILE_BYTES_MAX

    def read(self) -> tuple[str, int, str | None]:
        """The text as kept, how many bytes it lacks in its middle, and the file that has them."""
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total - len(self._head) - len(tail)
        if not dropped:
            return decode(self._head + tail), 0, None
        path = self._path if self.in_file else None
        where = f"; the first {self.in_file} bytes are in {path}" if self.is_over_cap else ""
        note = f"\n[... {dropped} bytes left out here{where} ...]\n"
        return decode(self._head) + note + decode(tail), dropped, path

    def forget_file(self) -> None:
        self.close()
        if self.in_file:
            self.in_file = 0
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
            return  # the kept head and tail are all there is
        self._write(bytes(self._head + self._tail))

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        try:
            self.in_file += os.write(self._file, piece[: FILE_BYTES_MAX - self.in_file])
        except OSError:
            self.close()
            return
        if self.in_file >= FILE_BYTES_MAX:
            self.close()


def decode(text: bytes | bytearray) -> str:
    return text.decode("utf-8", "replace")


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # somebody inside removed it before us
