"""Resource limits of one sandbox."""

from dataclasses import dataclass

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

    def rlimits(self) -> dict[str, int]:
        """The RLIMIT_* values that the program inside sets on itself before anything else runs."""
        return {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """`how` says what enforces the limit, or why it is not enforced."""

    name: str
    is_active: bool
    how: str
