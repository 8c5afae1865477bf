"""The processes of a jail as the host sees them: all that descend from its outermost bubblewrap."""

import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def child_pids() -> dict[int, list[int]]:
    """The children of every process of this machine."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    return children


def process_tree(pid: int, children: dict[int, list[int]] | None = None) -> list[int]:
    """The process and all below it, parents first."""
    known = child_pids() if children is None else children
    found = [pid]
    for member in found:
        found += known.get(member, [])
    return found


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended; one that nobody has looked after yet has."""
    stat = _stat(pid)
    return bool(stat) and stat[0] not in (b"Z", b"X")


def process_memory_bytes(pid: int) -> int:
    """The process's share of what it has in memory, shared pages divided; 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return _resident_bytes(pid)
    return 0


def _resident_bytes(pid: int) -> int:
    """Where the share may not be read: without what it shares with files."""
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


def _parent(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[1]) if stat else None


def _stat(pid: int) -> list[bytes]:
    """From its state on; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
