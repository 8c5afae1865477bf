"""Reads the host's process table: process trees, and the memory of a process."""

import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def child_pids() -> dict[int, list[int]]:
    """Returns the child pids of every process of this machine."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent_pid(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    return children


def process_tree(pid: int, children: dict[int, list[int]] | None = None) -> list[int]:
    """Returns the process and all its descendants, parents first."""
    known = child_pids() if children is None else children
    found = [pid]
    for member in found:
        found += known.get(member, [])
    return found


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended; a zombie has ended."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in (b"Z", b"X")


def process_memory_bytes(pid: int) -> int:
    """Returns the process's proportional memory, with shared pages divided among their users; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return _resident_bytes(pid)
    return 0


def _resident_bytes(pid: int) -> int:
    """Resident memory without file-backed pages, for processes whose smaps cannot be read."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


def _parent_pid(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[1]) if stat else None


def _stat(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the state on, or nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
