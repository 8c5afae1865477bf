"""What a sandbox says of its commands and files."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """What a shell session has to say about its newest command.

    `exit_code` is None while it runs. `output` has kept its head and tail and lost `dropped_bytes` in between; then
    `output_path` names the file inside the sandbox that holds all of it.
    """

    output: str
    exit_code: int | None
    folder: str
    dropped_bytes: int = 0
    output_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSession:
    name: str
    command: str
    is_running: bool
    running_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """`path` is relative to /workspace."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    modified_at: float
