"""Finding and killing the processes of a shell session, also those that left its group or its session."""

from __future__ import annotations

import os
import signal

MARK = "THREADHAND_SHELL"  # in the environment of everything that a session starts
PASSES_MAX = 50


def of_session(shell_pid: int, mark: str) -> set[int]:
    """Everything with the shell's session id, its mark in the environment, or such a parent."""
    needle = f"{MARK}={mark}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        facts = _parent_and_session(pid)
        if facts is None or pid == os.getpid():
            continue
        parents[pid] = facts[0]
        if facts[1] == shell_pid or pid == shell_pid or _has_mark(pid, needle):
            found.add(pid)
    grew = True
    while grew:
        grown = {pid for pid, parent in parents.items() if parent in found} - found
        found |= grown
        grew = bool(grown)
    return found


def kill_session(shell_pid: int, mark: str) -> None:
    """Kills until a pass finds nobody: first stops them all, so that none forks away meanwhile."""
    for _ in range(PASSES_MAX):
        pids = of_session(shell_pid, mark)
        if not pids:
            return
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                send(pid, how)


def send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except OSError:
        return  # it has ended already


def send_group(group: int, how: signal.Signals) -> None:
    try:
        os.killpg(group, how)
    except OSError:
        return


def is_alive(pid: int) -> bool:
    return _parent_and_session(pid) is not None


def _parent_and_session(pid: int) -> tuple[int, int] | None:
    """None for a process that is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in b"ZX" else (int(fields[1]), int(fields[3]))


def _has_mark(pid: int, needle: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return needle in file.read(256 * 1024).split(b"\0")
    except OSError:
        return False
