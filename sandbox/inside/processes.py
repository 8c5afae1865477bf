"""Starts bash on a pty, and finds and kills the processes of commands."""

from __future__ import annotations

import os

from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import CallError

MARK_VARIABLE = "THREADHAND_SHELL"  # in the environment of everything that a command starts
LOCALE = ("LANG", "LC_")
PASSES_MAX = 50
KILLED = 128 + signal.SIGKILL


def start_bash(folder: str, script: str, mark: str) -> tuple[int, int, int]:
    """Starts a bash that runs the script. Returns its pid, the master side of its terminal, and the writing end of a
    pipe that is its descriptor 3. Raises CallError."""
    pipe: tuple[int, ...] = ()
    try:
        pipe = os.pipe()
        pid, terminal = os.forkpty()
    except OSError as error:
        for end in pipe:
            os.close(end)
        raise CallError(
            f"The sandbox can start no more processes ({error.strerror}); terminate some sessions."
        ) from None
    source, target = pipe
    if pid == 0:
        # loading the locale takes a third of the time of a short command
        locale = {name: value for name, value in os.environ.items() if name.startswith(LOCALE)}  # noqa: TID251
        become_bash(folder, source, script, {**locale, MARK_VARIABLE: mark})
    os.close(source)
    os.set_inheritable(terminal, False)
    return pid, terminal, target


def become_bash(folder: str, source: int, script: str, environment: dict[str, str]) -> None:
    """Replaces the child process with bash. Never returns."""
    try:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(ignored, signal.SIG_DFL)  # Python's settings would be inherited
        _prefer_oom_kill()
        os.nice(5)
        os.chdir(folder)
        os.dup2(source, 3)
        os.set_inheritable(3, True)
        os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "-c", script], environment)
    finally:
        os._exit(127)


def _prefer_oom_kill() -> None:
    """Makes the kernel kill a command rather than the program inside when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        return


def processes_of(commands: dict[int, str]) -> dict[int, int]:
    """Returns the living processes of commands, given as the pids of their bash with their marks.

    A process belongs to a command that has the pid of its session or the mark in its environment, or to the command of
    its parent. The result maps each process to the pid of its command."""
    pids_by_mark = {mark.encode(): pid for pid, mark in commands.items()}
    parents: dict[int, int] = {}
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        parent, session = parent_and_session(pid)
        parents[pid] = parent
        owner = session if session in commands else pids_by_mark.get(_mark_of(pid)) if session else None
        if owner is not None:
            found[pid] = owner
    grew = True
    while grew:
        grown = {pid: found[parent] for pid, parent in parents.items() if parent in found and pid not in found}
        found |= grown
        grew = bool(grown)
    return found


def kill_processes_of(commands: dict[int, str]) -> None:
    """Kills the commands' processes until none is found. Stops all of them first, so that none can fork meanwhile."""
    for _ in range(PASSES_MAX):
        pids = processes_of(commands)
        if not pids:
            return
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                send_signal(pid, how)


def send_signal(pid: int, how: int) -> None:
    try:
        os.kill(pid, how)
    except OSError:
        return  # it has already ended


def send_group_signal(group: int, how: int) -> None:
    try:
        os.killpg(group, how)
    except OSError:
        return


def has_exited(pid: int) -> bool:
    """Returns whether a child process has ended. `wait_for_exit` must still be called for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return True


def wait_for_exit(pid: int) -> int:
    """Waits for a child process that has ended or was killed, and returns its exit code as bash reports it."""
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except OSError:
        return KILLED
    return code if code >= 0 else 128 - code


def parent_and_session(pid: int) -> tuple[int, int]:
    """Returns zeros if the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return (0, 0) if fields[0] in b"ZX" else (int(fields[1]), int(fields[3]))


def _mark_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read(256 * 1024).split(b"\0")
    except OSError:
        return b""
    prefix = MARK_VARIABLE.encode() + b"="
    return next((one[len(prefix) :] for one in variables if one.startswith(prefix)), b"")
