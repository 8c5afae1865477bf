"""One command: a fresh bash on its own pty, which starts from the state of a session and saves it at its end.

bash learns what to run from a pipe, so it can be started before there is a command. Whatever the command does to its
shell ends with it: options such as `set -e`, redirections by `exec`, traps and jobs are not part of the state."""

from __future__ import annotations

import os
import time

from sandbox.inside import processes
from sandbox.inside.captured_output import CapturedOutput, OutputFiles, remove
from sandbox.inside.event_loop import EventLoop, Timer
from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import CallError
from sandbox.inside.terminal import Terminal

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES_A_TURN = 256 * 1024
FAST_BYTES = 4 * 1024 * 1024  # printed at full speed; endless output is then slowed down
SLOW_BYTES_PER_SECOND = 24 * 1024 * 1024
CAPPED_BYTES_PER_SECOND = 2 * 1024 * 1024  # of output beyond the file limit, which is discarded
DRAINED_PIECES = 16  # how many pieces are read at once when a command ends
LATE_SECONDS = 0.1  # for the output of what a command has left running, such as `tee` in a process substitution
STATE_BYTES_MAX = 1024 * 1024
NOT_SAVED = b"\n[the folder and variables of the session are those from before this command]\n"

# The state is loaded before aliases are expanded, because the bodies of saved functions contain the expansion
# already. bash gives HOME, PATH and others a value of its own, which the state must be able to lack. Job control (-m)
# puts each background job into a process group of its own. A process substitution stays in the group of bash: when
# bash ends, the kernel sends SIGHUP to that group, which is ignored so that `tee` in `> >(tee log)` can finish. A
# trap of the command replaces ours, so the state is also saved at the end of the command. An `exit` in a function
# runs the trap there, where local variables hide those of the session, so nothing is saved. `cd` sets OLDPWD to PWD.
PRELUDE = """\
threadhand_save() {{
  [[ ${{FUNCNAME[1]-source}} == source ]] || builtin return
  builtin set +euxv
  builtin trap - DEBUG ERR RETURN
  builtin unset -f threadhand_save
  builtin unset -v BASH_ALIASES BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING LINENO RANDOM
  [[ -d {files} ]] || mkdir -- {files}
  {{
    builtin declare -p && builtin umask -p && builtin alias -p && builtin declare -f && builtin declare -F &&
      builtin printf '%s\\n' '#folder' && builtin pwd
  }} >|{path}.saved
  builtin return "${{1-0}}"
}}
builtin unset -v HOME PATH TERM OLDPWD LANG "${{!LC_@}}"
[[ -r {path}.state ]] || exit 1
builtin shopt -s extglob
. {path}.state >/dev/null 2>&1
builtin shopt -u extglob
builtin export {variable}={mark}
builtin set -m
builtin trap '' HUP
builtin trap '{{ builtin declare -F threadhand_save >&2 && threadhand_save; }} 2>/dev/null' EXIT
. /proc/self/fd/3
"""
SCRIPT = """\
exec 3<&-
[[ $PWD != {folder} ]] || PWD=$OLDPWD
builtin cd -- {folder} || exit 1
builtin shopt -s expand_aliases
{last_exit}
{{ . {path}.sh; {{ threadhand_save "$?"; }} 2>/dev/null; }}
"""
FOLDER_LINE = b"#folder\n"


class SessionState:
    """What a session keeps between its commands. `text` is bash code that restores variables, functions, aliases and
    the umask."""

    __slots__ = ("exit_code", "folder", "text")

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        exported = {name: value for name, value in environment.items() if name.isidentifier()}
        exports = (f"declare -x {name}={shell_quote(value)}\n" for name, value in exported.items())
        self.text = os.fsencode("".join(exports))
        self.folder = folder
        self.exit_code = 0


class Shell:
    """A bash that has loaded the state of a session and waits for a command. `terminal` is the master side of its pty,
    and `mark` is in the environment of everything that it starts."""

    __slots__ = ("_script", "_text", "mark", "path", "pid", "state", "terminal")

    def __init__(self, files: OutputFiles, state: SessionState, root: str) -> None:
        """Raises CallError."""
        self.state, self._text = state, state.text
        self.mark = os.urandom(8).hex()
        self.path = f"{files.folder}/{self.mark}"
        prelude = PRELUDE.format(path=self.path, files=files.folder, variable=processes.MARK_VARIABLE, mark=self.mark)
        try:
            os.makedirs(files.folder, mode=0o700, exist_ok=True)
            write_file(f"{self.path}.state", state.text)
        except OSError as error:
            raise command_refused(error) from None
        self.pid, self.terminal, self._script = processes.start_bash(root, prelude, self.mark)

    def fits(self, state: SessionState) -> bool:
        """Whether bash still waits and has loaded the newest state of this session."""
        return self.state is state and self._text is state.text and not processes.has_exited(self.pid)

    def begin(self, text: str) -> None:
        """Lets bash run a command. Raises CallError."""
        code = self.state.exit_code
        script = SCRIPT.format(
            folder=shell_quote(self.state.folder), path=self.path, last_exit=f"(exit {code})" if code else ""
        )
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            write_file(f"{self.path}.sh", text.encode("utf-8", "surrogateescape") + b"\n")
            os.write(self._script, os.fsencode(script))
        except OSError as error:
            raise command_refused(error) from None
        finally:
            os.close(self._script)

    def discard(self) -> None:
        """Ends a bash that has not begun."""
        os.close(self._script)
        os.close(self.terminal)
        processes.send_signal(self.pid, signal.SIGKILL)
        processes.wait_for_exit(self.pid)
        self.delete_files()

    def delete_files(self) -> None:
        for ending in ("sh", "state", "saved"):
            remove(f"{self.path}.{ending}")


def command_refused(error: OSError) -> CallError:
    return CallError(f"The sandbox cannot take the command: {error.strerror}.")


class Command:
    """A command of a session. `exit_code` is None while it runs. The callbacks in `on_end` are called once it has
    ended."""

    def __init__(self, loop: EventLoop, files: OutputFiles, shell: Shell, *, name: str, text: str) -> None:
        self._loop = loop
        self._shell = shell
        self.pid, self.mark = shell.pid, shell.mark
        self.name, self.text = name, text
        self.is_kept = False
        self.started_at = time.monotonic()
        self.exit_code: int | None = None
        self._late: Timer | None = None
        self.on_end: list[Callable[[], None]] = []
        self._folder = shell.state.folder
        safe = "".join(letter if letter.isalnum() else "_" for letter in name[:40])
        self.output = CapturedOutput(files, f"{safe}-{shell.mark[:6]}.txt")
        self.terminal = Terminal(loop, shell.terminal)
        loop.on_readable(shell.terminal, self._read)

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def has_jobs(self) -> bool:
        """Returns whether a process that the command left running may still print."""
        return not self.is_running and self.terminal.is_open

    @property
    def folder(self) -> str:
        try:
            return os.readlink(f"/proc/{self.pid}/cwd") if self.is_running else self._folder
        except OSError:
            return self._folder

    def interrupt(self) -> None:
        """Sends Ctrl-C to the foreground group, whatever the modes of the terminal are."""
        for group in {self.terminal.foreground or self.pid, self.pid}:  # bash runs the traps of the command
            for how in (signal.SIGINT, signal.SIGCONT):
                processes.send_group_signal(group, how)

    def end_if_exited(self) -> None:
        """Called when any child process has ended."""
        if self.is_running and self._late is None and processes.has_exited(self.pid):
            self._late = self._loop.call_later(LATE_SECONDS, self._end)
            self._read()  # nothing is late at the end of the terminal

    def finish_killed(self) -> None:
        """Called when all processes of the command were killed."""
        if self.is_running:
            # a child that was forked just now has no session and no mark by which it could be found
            processes.send_signal(self.pid, signal.SIGKILL)
            self._end()
        self._close()

    def _close(self) -> None:
        self.terminal.close()
        self.output.close()

    def _end(self) -> None:
        exit_code = processes.wait_for_exit(self.pid)
        if self._late is not None:
            self._late.cancel()
        piece = b"-"
        for _ in range(DRAINED_PIECES):
            piece = self.terminal.read()
            if not piece:
                break
            self.output.add(piece)
        # After SIGKILL or `exec`, or if the state is too large or the disk full, bash has saved no state, and the
        # session keeps what it had.
        text, mark, folder = read_file(f"{self._shell.path}.saved").rpartition(FOLDER_LINE)
        if mark and folder.endswith(b"\n"):
            self._shell.state.text = text
            self._shell.state.folder = self._folder = os.fsdecode(folder[:-1])
        else:
            self.output.add(NOT_SAVED)
        self.terminal.drop_inputs()
        self.exit_code = self._shell.state.exit_code = exit_code
        if piece == b"":
            self._close()
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            callback()
        self._shell.delete_files()

    def _read(self) -> None:
        taken = 0
        while taken < READ_BYTES_A_TURN:
            piece = self.terminal.read()
            if piece is None:
                return
            if not piece:
                # bash may still be running after it has closed its terminal
                self._loop.on_readable(self.terminal.descriptor, None)
                if self.is_running and self._late is not None:
                    self._end()
                elif not self.is_running:
                    self._close()
                return
            taken += len(piece)
            self.output.add(piece)
        if self.output.total_bytes > FAST_BYTES:
            rate = CAPPED_BYTES_PER_SECOND if self.output.exceeds_file_limit else SLOW_BYTES_PER_SECOND
            self._loop.on_readable(self.terminal.descriptor, None)
            self._loop.call_later(taken / rate, self._resume)

    def _resume(self) -> None:
        if self.terminal.is_open:
            self._loop.on_readable(self.terminal.descriptor, self._read)


def shell_quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def write_file(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def read_file(path: str) -> bytes:
    """Returns the content of a regular file of at most STATE_BYTES_MAX bytes, otherwise nothing."""
    try:
        # a command may have put anything there, even a pipe that never ends
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, STATE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return content if len(content) <= STATE_BYTES_MAX else b""
