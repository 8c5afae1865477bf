"""Resource limits of one sandbox."""

import resource
from dataclasses import dataclass
from typing import Literal

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    memory_bytes: int = 2 * GIBIBYTE
    processes: int = 512
    open_files: int = 4096
    file_bytes: int = 4 * GIBIBYTE
    workspace_bytes: int = 10 * GIBIBYTE
    temporary_bytes: int = 512 * MEBIBYTE
    home_bytes: int = 256 * MEBIBYTE
    command_seconds: float = 6 * 3600.0
    disk_free_bytes_min: int = 512 * MEBIBYTE
    memory_free_bytes_min: int = 128 * MEBIBYTE
    sandboxes: int = 0
    """How many sandboxes may run at a time. 0: as many as `sandbox_capacity` returns."""

    def rlimits(self) -> dict[str, int]:
        """The RLIMIT_* values that the program inside sets on itself before anything else runs."""
        return {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CORE": 0,
        }


HeldBy = Literal["kernel", "watchdog", "program", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """`how` says what enforces the limit. "watchdog": it counts, so the limit can be exceeded until the next check.
    "program": enforced by Threadhand's own code, outside of the commands' reach. "nobody": not enforced."""

    name: str
    held_by: HeldBy
    how: str


MEMORY_PER_SANDBOX_BYTES = 64 * MEBIBYTE
DESCRIPTORS_PER_SANDBOX = 8
DESCRIPTORS_FOR_THE_REST = 256
DESCRIPTORS_WANTED = 65_536


def sandbox_capacity(*, total_memory_bytes: int) -> int:
    """Returns how many sandboxes this process can run. An idle one takes 5 MB of memory and 4 descriptors, one with
    connections to the internet more."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft
    by_descriptors = (descriptors - DESCRIPTORS_FOR_THE_REST) // DESCRIPTORS_PER_SANDBOX
    return max(1, min(by_descriptors, total_memory_bytes // MEMORY_PER_SANDBOX_BYTES))


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files as far as the hard limit allows, up to what this program can use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
