"""Starting bash on a pty of its own, and taking its exit code when it has ended."""

from __future__ import annotations

import os
import time

from sandbox.inside import processes
from sandbox.inside.lean import signal
from sandbox.inside.link import CallError
from sandbox.inside.marks import prompt_command


def start(folder: str, mark: str) -> tuple[int, int]:
    """The pid of a fresh bash and the master side of its terminal. Raises CallError."""
    environment = {
        **os.environ,  # noqa: TID251 - the sandbox's own, cleaned by the host
        "TERM": "dumb",
        "PS1": "",
        "PS2": "",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "HISTFILE": "/dev/null",
        processes.MARK: mark,
        "PROMPT_COMMAND": prompt_command(mark),
    }
    arguments = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
    try:
        pid, terminal = os.forkpty()
    except OSError as error:
        raise CallError(
            f"The sandbox can start no more processes ({error.strerror}); terminate some sessions."
        ) from None
    if pid == 0:
        become_bash(folder, arguments, environment)
    os.set_inheritable(terminal, False)
    return pid, terminal


def become_bash(folder: str, arguments: list[str], environment: dict[str, str]) -> None:
    """In the child: never returns."""
    try:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(ignored, signal.SIG_DFL)  # Python's own settings would be inherited
        _die_first()
        os.nice(5)
        os.chdir(folder)
        os.execve("/bin/bash", arguments, environment)
    finally:
        os._exit(127)


def _die_first() -> None:
    """Out of memory, a command dies before the program inside."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        return


def reap(pid: int) -> int:
    """The exit code of a shell that closed its terminal, as bash would tell it; kills one that lives on."""
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except OSError:
            return 137
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        time.sleep(0.005)
    processes.send(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except OSError:
        return 137
    return 137
