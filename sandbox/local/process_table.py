"""Reads the host's process table: process trees, and what the processes of a jail use."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGESIZE")
DESCRIPTORS_MAX = 50_000
MAPS_BYTES_MAX = 64 << 20  # of the mapping lists of a jail, because reading them takes time
INODE_BYTES = 1024  # the memory that the kernel uses for an empty file in memory


def process_tree(pid: int) -> list[int]:
    """Returns the process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else []
        if fields:
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def child_pids(pid: int) -> list[int]:
    """Returns the children of a process that has a single thread."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # the process has ended, or the kernel was built without this file
        return [
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and (fields := _stat(int(name))) and int(fields[1]) == pid
        ]


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended; a zombie has ended."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


@dataclass(frozen=True, slots=True, kw_only=True)
class JailUsage:
    """The resources that the processes of a jail hold. `deleted_bytes` are the sizes of files on disk without a name
    that are still open or mapped. `maps_bytes` is the length of the mapping lists. `written` maps each process to the
    bytes that it has written to a disk since it started."""

    memory_bytes: int
    deleted_bytes: int
    descriptors: int
    written: dict[int, int]
    maps_bytes: int = 0


def measure_jail(init_pid: int, memory_folders: tuple[str, ...]) -> JailUsage:
    """Measures all processes of the jail with that first process. They are found in the jail's own /proc, so none can
    leave its tree. `memory_folders` are the jail's file systems in memory. Returns zeros if the jail has ended."""
    root = f"/proc/{init_pid}/root"
    in_memory = {_anonymous_file_device()}
    memory_bytes = deleted_bytes = descriptors = maps_bytes = 0
    for folder in memory_folders:
        with suppress(OSError):
            file_system = os.statvfs(root + folder)
            in_memory.add(os.stat(root + folder).st_dev)
            memory_bytes += (file_system.f_blocks - file_system.f_bfree) * file_system.f_frsize
            memory_bytes += (file_system.f_files - file_system.f_ffree) * INODE_BYTES
    written: dict[int, int] = {}
    deleted: dict[tuple[int, int], int] = {}
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir(f"{root}/proc")):
            process = _live_task(f"{root}/proc", pid)
            memory_bytes += _memory_bytes(process) + _page_table_bytes(process)
            written[int(pid)] = _written_bytes(process)
            for found in _open_files(process, DESCRIPTORS_MAX - descriptors):
                descriptors += 1
                if not found.st_nlink and stat.S_ISREG(found.st_mode):
                    deleted[found.st_dev, found.st_ino] = found.st_blocks * 512
            maps_bytes += _add_mapped_files(process, deleted, MAPS_BYTES_MAX - maps_bytes)
    for (device, _), taken in deleted.items():
        if device not in in_memory:
            deleted_bytes += taken
        elif device == _anonymous_file_device():
            memory_bytes += taken
    return JailUsage(
        memory_bytes=memory_bytes,
        deleted_bytes=deleted_bytes,
        descriptors=descriptors,
        written=written,
        maps_bytes=maps_bytes,
    )


def _live_task(proc: str, pid: str) -> str:
    """Returns the folder of the process. If its first thread has ended, that folder is empty, so returns the folder of
    another thread."""
    with suppress(OSError):
        if Path(f"{proc}/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]:
            thread = next((one for one in os.listdir(f"{proc}/{pid}/task") if one != pid), pid)
            return f"{proc}/{thread}"
    return f"{proc}/{pid}"


def _open_files(process: str, count_max: int) -> Iterator[os.stat_result]:
    with suppress(OSError), os.scandir(f"{process}/fd") as entries:
        for _, entry in zip(range(count_max), entries, strict=False):
            with suppress(OSError):
                yield os.stat(entry.path)


def _add_mapped_files(process: str, deleted: dict[tuple[int, int], int], bytes_max: int) -> int:
    """Adds the mapped files without a name, and their sizes. Returns the number of bytes read."""
    bytes_read = 0
    mapped: dict[tuple[bytes, bytes], tuple[str, int]] = {}
    with suppress(OSError), open(f"{process}/maps", "rb") as lines:
        for line in lines:
            bytes_read += len(line)
            if bytes_read > bytes_max:
                break
            if line.endswith(b" (deleted)\n"):
                place, _, offset, device, inode, _ = line.split(None, 5)
                start, end = (int(one, 16) for one in place.split(b"-"))
                _, before = mapped.get((device, inode), ("", 0))
                reach = max(before, int(offset, 16) + end - start)
                mapped[device, inode] = f"{start:x}-{end:x}", reach
    for (device, inode), (place, reach) in mapped.items():
        try:
            found = os.stat(f"{process}/map_files/{place}")
        except OSError:  # only root may follow these links: the file has at least the mapped bytes
            major, minor = (int(one, 16) for one in device.split(b":"))
            deleted.setdefault((os.makedev(major, minor), int(inode)), reach)
        else:
            if not found.st_nlink and stat.S_ISREG(found.st_mode):
                deleted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return bytes_read


@cache
def _anonymous_file_device() -> int:
    """Returns the device of files made by memfd_create, and of System V shared memory."""
    descriptor = os.memfd_create("threadhand")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _memory_bytes(process: str) -> int:
    """Returns the process's proportional memory, with shared pages divided among their users; 0 if it has ended."""
    try:
        with open(f"{process}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        # smaps cannot be read: resident memory without file-backed pages
        try:
            resident, shared = Path(f"{process}/statm").read_text().split()[1:3]
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * PAGE_BYTES
    return 0


def _page_table_bytes(process: str) -> int:
    """Returns the memory that the kernel needs to map the process's memory. A program can make it larger than its own
    memory."""
    try:
        with open(f"{process}/status", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"VmPTE:"))
    except (OSError, StopIteration):
        return 0


def _written_bytes(process: str) -> int:
    try:
        with open(f"{process}/io", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"write_bytes:"))
    except (OSError, StopIteration):
        return 0


def _stat(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the state on, or nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
