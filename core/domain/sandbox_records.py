"""Records of the threads' sandboxes, so that any process can find, stop and restore them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

SandboxState = Literal["started", "stopped", "archived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """`provider_ref` is the provider's own id of the machine that runs or ran; `snapshot_ref` that of the saved files.

    started: a machine may run. stopped: none runs, the snapshot has all files. archived: the same, for a long time.
    """

    thread_id: str
    provider: str
    provider_ref: str
    state: SandboxState
    snapshot_ref: str | None
    last_used_at: datetime


class SandboxRecords(Protocol):
    """One record per thread and provider. Methods raise StorageUnavailable."""

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None: ...

    async def replace(self, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        """Stores the record if the stored one still equals `expected` (None: no record), ignoring `last_used_at`.

        Returns False if another process changed it first.
        """
        ...

    async def remove(self, provider: str, thread_id: str) -> None:
        """Succeeds if there is no record."""
        ...

    async def of_provider(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        """Returns the records unused since that time, the longest unused first."""
        ...
