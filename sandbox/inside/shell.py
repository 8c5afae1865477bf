"""One shell session: bash on a pty that we own, its commands sourced from files, their ends told by a marker.

The marker is an OSC sequence with a nonce that PROMPT_COMMAND prints to /dev/tty. Being in the output's own stream,
it comes after all that the command printed; going to /dev/tty, it survives `exec >file`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time

from sandbox.inside import bash, processes
from sandbox.inside.lean import signal
from sandbox.inside.link import CallError
from sandbox.inside.loop import Loop
from sandbox.inside.output import Output, OutputFiles

TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES_A_TURN = 256 * 1024
FAST_BYTES = 4 * 1024 * 1024  # printed at full speed; endless output is then slowed down
SLOW_BYTES_PER_SECOND = 24 * 1024 * 1024
CAPPED_BYTES_PER_SECOND = 2 * 1024 * 1024  # nobody will see these any more
MARKER_BYTES_MAX = 64
ENDED = "\n[the shell of this session has ended; the next command starts a fresh one]\n"


class Shell:
    """`exit_code` is None while the newest command runs, the `count`-th. `on_change` is called when it has ended."""

    def __init__(
        self,
        loop: Loop,
        files: OutputFiles,
        name: str,
        folder: str,
        *,
        mark: str,
        on_change: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._files = files
        self._on_change = on_change
        self.name = name
        self.mark = mark
        self.command = ""
        self.fence = 0
        self.started_at = time.monotonic()
        self.exit_code: int | None = None
        self.output = Output(files, "")
        self.is_dead = False
        self._is_ready = False
        self._line: bytes | None = None
        self._early = b""
        self.count = 0
        self._folder = folder
        self._held = b""
        self._marker = f"\033]697;{self.mark};".encode()
        self.pid, self._terminal = bash.start(folder, self.mark)
        self._quiet()
        os.set_blocking(self._terminal, False)
        loop.on_readable(self._terminal, self._read)
        self._watch = self._watch_process()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def folder(self) -> str:
        try:
            self._folder = os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            pass  # dead: the last folder known
        return self._folder

    def run(self, command: str, folder: str | None, fence: int) -> None:
        """Starts the command; the caller has made sure that none is running."""
        self.count += 1
        self._write_script(command, folder)
        self.output.close()
        self.output = Output(self._files, f"{self.name_for_files()}-{self.count}.txt")
        self.command, self.fence, self.exit_code = command, fence, None
        self.started_at = time.monotonic()
        self._line = f" . {self._script}\n".encode()
        if self._is_ready:
            self._type()

    def type_text(self, text: bytes) -> None:
        """What a person would type, held until the command has begun. Raises CallError when it does not read it."""
        if self._line is not None:
            self._early += text
            return
        try:
            os.write(self._terminal, text)
        except OSError:
            raise CallError("The session takes no input now.") from None

    @property
    def foreground(self) -> int:
        """The process group that the terminal listens to; 0 when the terminal is gone."""
        try:
            return os.tcgetpgrp(self._terminal)
        except OSError:
            return 0

    def signal_command(self, how: int) -> None:
        """To the foreground group; when that is the shell itself, only an interrupt is sent."""
        group = self.foreground
        if group and (group != self.pid or how == signal.SIGINT):
            processes.send_group(group, how)
            processes.send_group(group, signal.SIGCONT)

    def command_processes(self) -> set[int]:
        """Those of the running command; none while it is the shell itself that works."""
        group = self.foreground
        return processes.of_group(group) if group not in (0, self.pid) else set()

    def kill(self) -> None:
        """Ends the session and all that it started."""
        processes.kill_session(self.pid, self.mark)
        if not self.is_dead:
            self._drain()
            self._end()

    def name_for_files(self) -> str:
        safe = "".join(letter if letter.isalnum() else "_" for letter in self.name[:40])
        return f"{safe}-{self.mark[:6]}"

    @property
    def _script(self) -> str:
        return f"{self._files.folder}/{self.mark}.sh"

    def _write_script(self, command: str, folder: str | None) -> None:
        lines = command if folder is None else f"cd -- {quote(folder)} || return 1\n{command}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._files.folder, mode=0o700, exist_ok=True)
            with os.fdopen(os.open(self._script, flags, 0o600), "wb") as file:
                file.write(lines.encode("utf-8", "surrogateescape") + b"\n")
        except OSError as error:
            raise CallError(f"The sandbox cannot take the command: {error.strerror}.") from None

    def _type(self) -> None:
        assert self._line is not None
        line, self._line = self._line + self._early, None
        self._early = b""
        self._quiet()
        try:
            termios.tcflush(self._terminal, termios.TCOFLUSH)  # input that the last command left
            os.write(self._terminal, line)
        except (OSError, termios.error):
            return  # it has just died; the reader finds out

    def _quiet(self) -> None:
        """No echo, no translation, whatever the last command did to the terminal."""
        try:
            modes = termios.tcgetattr(self._terminal)
            modes[0] = (modes[0] | termios.ICRNL) & ~termios.IXON
            modes[1] &= ~termios.ONLCR
            modes[3] = (modes[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
            termios.tcsetattr(self._terminal, termios.TCSANOW, modes)
            size = struct.pack("HHHH", 50, 200, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        except (OSError, termios.error):
            return

    def _read(self) -> None:
        taken = 0
        while taken < READ_BYTES_A_TURN:
            try:
                piece = os.read(self._terminal, 65536)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self._end()
                return
            taken += len(piece)
            self._take(piece)
            if self.is_dead:
                return
        if self.output.total > FAST_BYTES:
            self._pause(taken)

    def _pause(self, taken: int) -> None:
        rate = CAPPED_BYTES_PER_SECOND if self.output.is_over_cap else SLOW_BYTES_PER_SECOND
        self._loop.on_readable(self._terminal, None)
        self._loop.later(taken / rate, self._resume)

    def _resume(self) -> None:
        if not self.is_dead:
            self._loop.on_readable(self._terminal, self._read)

    def _take(self, piece: bytes) -> None:
        text = self._held + piece
        self._held = b""
        while (start := text.find(b"\033")) >= 0:
            found = text.find(self._marker, start)
            if found < 0:
                keep = overlap(text, self._marker)
                self._print(text[: len(text) - keep])
                self._held = text[len(text) - keep :]
                return
            end = text.find(b"\a", found)
            if end < 0 and len(text) - found < MARKER_BYTES_MAX:
                self._print(text[:found])
                self._held = text[found:]
                return
            if end < 0 or not text[found + len(self._marker) : end].isdigit():
                cut = found + 1  # looks like ours and is not
                self._print(text[:cut])
            else:
                self._print(text[:found])
                self._prompted(int(text[found + len(self._marker) : end]))
                cut = end + 1
            text = text[cut:]
        self._print(text)

    def _print(self, text: bytes) -> None:
        if text:
            self.output.add(text)

    def _prompted(self, exit_code: int) -> None:
        if not self._is_ready:
            self._is_ready = True
            self.output = Output(self._files, self.output.name)  # without what bash says first
            if self._line is not None:
                self._type()
        elif self.exit_code is None and self._line is None:
            self.exit_code = exit_code
            self._on_change()

    def _watch_process(self) -> int | None:
        """A background job may hold the terminal open after the shell has ended."""
        try:
            watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._loop.later(0.25, self._look_at_process)
            return None
        self._loop.on_readable(watch, self._ended)
        return watch

    def _look_at_process(self) -> None:
        if self.is_dead:
            return
        if processes.is_alive(self.pid):
            self._loop.later(0.25, self._look_at_process)
        else:
            self._ended()

    def _ended(self) -> None:
        self._drain()
        self._end()

    def _drain(self) -> None:
        """Takes what is still in the terminal of a session that was killed."""
        for _ in range(16):
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:
                return
            if not piece:
                return
            self._take(piece)

    def _end(self) -> None:
        if self.is_dead:
            return
        self.is_dead = True
        self._loop.on_readable(self._terminal, None)
        os.close(self._terminal)
        if self._watch is not None:
            self._loop.on_readable(self._watch, None)
            os.close(self._watch)
        status = bash.reap(self.pid)
        processes.send_group(self.pid, signal.SIGHUP)
        self._print(self._held)
        if self.exit_code is None:
            self._print(ENDED.encode())
            self.exit_code = status
        self._on_change()


def overlap(text: bytes, marker: bytes) -> int:
    """How many of the last bytes may be the start of the marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"
