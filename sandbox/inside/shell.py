"""One shell session: bash on a pty. Commands are sourced from files, and a prompt marker tells that one has ended.

The marker is part of the output stream, so it follows everything that the command printed. The typed line sets the
number of the command and the marker contains it, so that a prompt shown before the line was read ends no command.
"""

from __future__ import annotations

import os
import time

from sandbox.inside import processes
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import CallError
from sandbox.inside.terminal import (
    NUMBER_VARIABLE,
    CapturedOutput,
    OutputFiles,
    PromptMarker,
    PromptMarkerParser,
    Terminal,
)

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES_A_TURN = 256 * 1024
FAST_BYTES = 4 * 1024 * 1024  # printed at full speed; endless output is then slowed down
SLOW_BYTES_PER_SECOND = 24 * 1024 * 1024
CAPPED_BYTES_PER_SECOND = 2 * 1024 * 1024  # this output is discarded
SETTLE_SECONDS = 0.03
INTERRUPTED = 128 + signal.SIGINT
ENDED = "\n[the shell of this session has ended; the next command starts a fresh one]\n"


class Shell:
    """`exit_code` is None while the newest command runs; `count` is its number.

    `on_change` is called when it has ended.
    """

    def __init__(
        self, loop: EventLoop, files: OutputFiles, name: str, folder: str, *, mark: str, on_change: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._files = files
        self._on_change = on_change
        self.name = name
        self.mark = mark
        self.command = ""
        self.is_kept = False
        self.started_at = time.monotonic()
        self.exit_code: int | None = None
        self.output = CapturedOutput(files, "")
        self.is_dead = False
        self._is_ready = False
        self._is_waiting = False  # for the shell to be ready
        self._early: list[tuple[bytes, Callable[[int], None]]] = []
        self.count = 0
        self._folder = folder
        self._script = CommandFile(f"{files.folder}/{mark}.sh")
        self._marks = PromptMarkerParser(mark)
        self._last = PromptMarker(0)
        self._is_cancelled = False
        self._is_interrupted = False
        self.pid, descriptor = processes.start_bash(folder, mark)
        self._terminal = Terminal(loop, descriptor)
        loop.on_readable(descriptor, self._read)
        self._watch = self._watch_exit()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def folder(self) -> str:
        try:
            self._folder = os.readlink(f"/proc/{self.pid}/cwd")
        except OSError:
            pass  # the shell has ended: the last known folder
        return self._folder

    def run(self, command: str, folder: str | None) -> None:
        """Starts the command; the caller must have checked that none is running."""
        self.count += 1
        enter = "" if folder is None else f"cd -- {shell_quote(folder)} || return 1\n"
        self._script.write(enter + command)
        self.output.close()
        self.output = CapturedOutput(self._files, f"{self.name_for_files()}-{self.count}.txt")
        self.command, self.is_kept, self.exit_code = command, False, None
        self.started_at = time.monotonic()
        self._is_waiting, self._is_cancelled, self._is_interrupted = True, False, False
        if self._is_ready:
            self._type_command()

    def cancel_pending(self) -> None:
        """Prevents the command from starting if it has not yet; it then ends with the exit code of an interrupt."""
        if self._is_waiting:
            self._is_waiting = False
            self._finish(INTERRUPTED)
            return
        self._script.replace(f"return {INTERRUPTED}")
        self._is_cancelled = True

    def type_text(self, text: bytes, done: Callable[[int], None]) -> None:
        """Types input for the command, once it has started. See `Terminal.write`."""
        if self._is_waiting:
            self._early.append((text, done))
        else:
            self._terminal.write(text, done)

    @property
    def foreground(self) -> int:
        return self._terminal.foreground

    def signal_command(self, how: int) -> None:
        """Signals the foreground group; if that is the shell itself, only an interrupt is sent."""
        group = self.foreground
        self._drop_inputs()
        self._terminal.discard_input()  # as Ctrl-C does in a terminal
        if self.is_shell_group(group):
            self._is_interrupted = True
        if group and (group != self.pid or how == signal.SIGINT):
            processes.send_group_signal(group, how)
            processes.send_group_signal(group, signal.SIGCONT)

    def is_shell_group(self, group: int) -> bool:
        """Whether the group is this shell, or a nested shell that reads our input."""
        return group == self.pid or str(group).encode() == self._last.pid

    def command_processes(self) -> set[int]:
        """Returns the processes of the running command, or an empty set if it runs in the shell itself."""
        group = self.foreground
        return set() if group == 0 or self.is_shell_group(group) else processes.group_processes(group)

    def kill(self) -> None:
        """Kills the session and everything it started."""
        processes.kill_session(self.pid, self.mark)
        if not self.is_dead:
            self._drain()
            self._end()

    def name_for_files(self) -> str:
        safe = "".join(letter if letter.isalnum() else "_" for letter in self.name[:40])
        return f"{safe}-{self.mark[:6]}"

    def _type_command(self) -> None:
        self._is_waiting = False
        code = self._last.exit_code
        # keeps $? for the command, which an assignment alone would set to 0
        kept = f"$(exit {code}) ||" if code else ";"
        line = f" {NUMBER_VARIABLE}={self.count}{kept} . {self._script.path}\n"
        self._terminal.reset_modes()
        self._terminal.discard_input()
        self._terminal.write(line.encode(), lambda left: None)
        early, self._early = self._early, []
        for text, done in early:
            self._terminal.write(text, done)

    def _read(self) -> None:
        taken = 0
        while taken < READ_BYTES_A_TURN:
            piece = self._terminal.read()
            if piece is None:
                return
            if not piece:
                self._end()
                return
            taken += len(piece)
            self._feed_output(piece)
            if self.is_dead:
                return
        if self.output.total_bytes > FAST_BYTES:
            self._pause(taken)

    def _pause(self, taken: int) -> None:
        rate = CAPPED_BYTES_PER_SECOND if self.output.exceeds_file_limit else SLOW_BYTES_PER_SECOND
        self._loop.on_readable(self._terminal.descriptor, None)
        self._loop.call_later(taken / rate, self._resume)

    def _resume(self) -> None:
        if not self.is_dead:
            self._loop.on_readable(self._terminal.descriptor, self._read)

    def _feed_output(self, piece: bytes) -> None:
        for part in self._marks.feed(piece):
            if isinstance(part, PromptMarker):
                self._on_prompt(part)
            elif part:
                self.output.add(part)

    def _on_prompt(self, mark: PromptMarker) -> None:
        if not self._is_ready:
            self._is_ready, self._last = True, mark
            self.output = CapturedOutput(self._files, self.output.name)  # drops what bash prints at its start
            if self._is_waiting:
                self._type_command()
        elif self.is_running and not self._is_waiting:
            # a command may have unset the variable: a marker without a number ends the command
            is_believed = not (mark.number or self._is_cancelled)
            if mark.is_newer_than(self._last) or is_believed:
                self._last = mark
                if self._is_interrupted:
                    self._settle_later(self.count, mark.exit_code)
                else:
                    self._finish(mark.exit_code)
            elif self._is_cancelled and mark.number != str(self.count).encode():
                self._type_command()

    def _settle_later(self, count: int, exit_code: int) -> None:
        """Waits until an interrupted bash is idle: it may show its prompt while a program is still starting."""

        def settle() -> None:
            if not self.is_running or self.count != count:
                return
            group = self.foreground
            if group == 0 or self.is_shell_group(group):
                self._finish(exit_code)
                return
            for pid in processes.group_processes(group):
                processes.send_signal(pid, signal.SIGKILL)
            self._settle_later(count, exit_code)

        self._loop.call_later(SETTLE_SECONDS, settle)

    def _finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._drop_inputs()
        self._on_change()

    def _drop_inputs(self) -> None:
        """What no command has read is not typed for the next."""
        self._terminal.drop_inputs()
        early, self._early = self._early, []
        for text, done in early:
            done(len(text))

    def _watch_exit(self) -> int | None:
        """Watches the process, because a background job may keep the terminal open after the shell has ended."""
        try:
            watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._loop.call_later(0.25, self._poll_process)
            return None
        self._loop.on_readable(watch, self._on_process_exit)
        return watch

    def _poll_process(self) -> None:
        if self.is_dead:
            return
        if processes.is_alive(self.pid):
            self._loop.call_later(0.25, self._poll_process)
        else:
            self._on_process_exit()

    def _on_process_exit(self) -> None:
        self._drain()
        self._end()

    def _drain(self) -> None:
        """Reads the remaining output of a session that has ended."""
        for _ in range(16):
            piece = self._terminal.read()
            if not piece:
                return
            self._feed_output(piece)

    def _end(self) -> None:
        if self.is_dead:
            return
        self.is_dead = True
        self._drop_inputs()
        self._loop.on_readable(self._terminal.descriptor, None)
        self._terminal.close()
        if self._watch is not None:
            self._loop.on_readable(self._watch, None)
            os.close(self._watch)
        status = processes.reap_shell(self.pid)
        processes.send_group_signal(self.pid, signal.SIGHUP)
        self.output.add(self._marks.flush())
        if self.exit_code is None:
            self.output.add(ENDED.encode())
            self.exit_code = status
        self._on_change()


def shell_quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


class CommandFile:
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, lines: str) -> None:
        """Writes the file while no shell reads it. Removes the old file first to free its space. Raises CallError."""
        self._remove()
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            _write(self.path, lines)
        except OSError as error:
            raise CallError(f"The sandbox cannot take the command: {error.strerror}.") from None

    def replace(self, lines: str) -> None:
        """Replaces the file atomically, because a shell may be reading it. Removes it if the disk is full."""
        fresh = self.path + ".new"
        try:
            _write(fresh, lines)
            os.replace(fresh, self.path)
        except OSError:
            self._remove()

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            return


def _write(path: str, lines: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(lines.encode("utf-8", "surrogateescape") + b"\n")
