"""Starts bash on a pty, and finds and kills the processes of a shell session."""

from __future__ import annotations

import os
import time

from sandbox.inside.fast_stdlib import signal
from sandbox.inside.host_connection import CallError
from sandbox.inside.terminal import prompt_command

SESSION_VARIABLE = "THREADHAND_SHELL"  # in the environment of everything that a session starts
PASSES_MAX = 50


def session_processes(shell_pid: int, mark: str) -> set[int]:
    """Returns processes with the shell's session id or its mark in the environment, and their descendants."""
    needle = f"{SESSION_VARIABLE}={mark}".encode()
    everyone = _all_processes()
    found = {
        pid
        for pid, (_, _, session) in everyone.items()
        if session == shell_pid or pid == shell_pid or _has_session_variable(pid, needle)
    }
    return _with_descendants(found, everyone)


def group_processes(group: int) -> set[int]:
    """Returns the members of a process group and their descendants, even if these left the group."""
    everyone = _all_processes()
    found = {pid for pid, (_, its_group, _) in everyone.items() if its_group == group}
    return _with_descendants(found, everyone)


def _all_processes() -> dict[int, tuple[int, int, int]]:
    """Returns parent, group and session of every living process except this one."""
    found: dict[int, tuple[int, int, int]] = {}
    for name in os.listdir("/proc"):
        facts = _facts(int(name)) if name.isdigit() else None
        if facts is not None and int(name) != os.getpid():
            found[int(name)] = facts
    return found


def _with_descendants(found: set[int], everyone: dict[int, tuple[int, int, int]]) -> set[int]:
    grew = True
    while grew:
        grown = {pid for pid, facts in everyone.items() if facts[0] in found} - found
        found |= grown
        grew = bool(grown)
    return found


def kill_session(shell_pid: int, mark: str) -> None:
    """Kills until no process is found. Stops all of them first, so that none can fork meanwhile."""
    for _ in range(PASSES_MAX):
        pids = session_processes(shell_pid, mark)
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


def is_alive(pid: int) -> bool:
    return _facts(pid) is not None


def _facts(pid: int) -> tuple[int, int, int] | None:
    """Returns parent, group and session, or None if the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in b"ZX" else (int(fields[1]), int(fields[2]), int(fields[3]))


def _has_session_variable(pid: int, needle: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return needle in file.read(256 * 1024).split(b"\0")
    except OSError:
        return False


def start_bash(folder: str, mark: str) -> tuple[int, int]:
    """Returns the pid of a new bash and the master side of its terminal. Raises CallError."""
    environment = {
        **os.environ,  # noqa: TID251 - the sandbox's own, cleaned by the host
        "TERM": "dumb",
        "PS1": "",
        "PS2": "",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "HISTFILE": "/dev/null",
        SESSION_VARIABLE: mark,
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
    """Runs in the child process and never returns."""
    try:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(ignored, signal.SIG_DFL)  # Python's settings would be inherited
        _prefer_oom_kill()
        os.nice(5)
        os.chdir(folder)
        os.execve("/bin/bash", arguments, environment)
    finally:
        os._exit(127)


def _prefer_oom_kill() -> None:
    """Lets the kernel kill a command before the program inside when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        return


def reap_shell(pid: int) -> int:
    """Returns the exit code (as bash reports it) of a shell that closed its terminal; kills it if it still runs."""
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
    send_signal(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except OSError:
        return 137
    return 137
