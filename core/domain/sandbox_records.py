"""Records of the threads' sandboxes, through which any process can find, stop and restore them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

SandboxState = Literal["started", "stopped", "archived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """The state of a thread's sandbox. `provider_ref` is the provider's id of the machine, and `snapshot_ref` the id of
    the saved files.

    "started": a machine may be running. "stopped": no machine runs, and the snapshot contains all files. "archived":
    like "stopped", for long-term storage.
    """

    thread_id: str
    provider: str
    provider_ref: str
    state: SandboxState
    snapshot_ref: str | None
    last_used_at: datetime


class SandboxRecords(Protocol):
    """Stores one record per thread and provider. Methods raise StorageUnavailable."""

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None: ...

    async def replace(self, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        """Stores the record if the stored one still equals `expected`, ignoring `last_used_at`. None means no record.

        Returns False if another process changed the record first.
        """
        ...

    async def remove(self, provider: str, thread_id: str) -> None:
        """Deletes the record. Does nothing if there is none."""
        ...

    async def list_unused(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        """Returns the records in these states that have been unused since the given time, least recently used first."""
        ...
