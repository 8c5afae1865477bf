"""Finding and killing the processes of a shell session, also those that left its group or its session."""

from __future__ import annotations

import os

from sandbox.inside.lean import signal

MARK = "THREADHAND_SHELL"  # in the environment of everything that a session starts
PASSES_MAX = 50


def of_session(shell_pid: int, mark: str) -> set[int]:
    """Everything with the shell's session id, its mark in the environment, or such a parent."""
    needle = f"{MARK}={mark}".encode()
    everyone = _everyone()
    found = {
        pid
        for pid, (_, _, session) in everyone.items()
        if session == shell_pid or pid == shell_pid or _has_mark(pid, needle)
    }
    return _with_descendants(found, everyone)


def of_group(group: int) -> set[int]:
    """The members of a process group and all below them, also those that left it."""
    everyone = _everyone()
    found = {pid for pid, (_, its_group, _) in everyone.items() if its_group == group}
    return _with_descendants(found, everyone)


def _everyone() -> dict[int, tuple[int, int, int]]:
    """Parent, group and session of every living process but ourselves."""
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
    """Kills until a pass finds nobody: first stops them all, so that none forks away meanwhile."""
    for _ in range(PASSES_MAX):
        pids = of_session(shell_pid, mark)
        if not pids:
            return
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                send(pid, how)


def send(pid: int, how: int) -> None:
    try:
        os.kill(pid, how)
    except OSError:
        return  # it has ended already


def send_group(group: int, how: int) -> None:
    try:
        os.killpg(group, how)
    except OSError:
        return


def is_alive(pid: int) -> bool:
    return _facts(pid) is not None


def _facts(pid: int) -> tuple[int, int, int] | None:
    """None for a process that is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in b"ZX" else (int(fields[1]), int(fields[2]), int(fields[3]))


def _has_mark(pid: int, needle: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return needle in file.read(256 * 1024).split(b"\0")
    except OSError:
        return False
