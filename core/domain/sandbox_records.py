"""What is remembered of a thread's sandbox, so that any process can find, stop and restore it."""

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
    """One record a thread and provider. Raises StorageUnavailable."""

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None: ...

    async def replace(self, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        """Stores the record where the stored one is still the expected one (None: there is none), whenever that was
        last used; False where another process was quicker."""
        ...

    async def remove(self, provider: str, thread_id: str) -> None:
        """Succeeds where there is none."""
        ...

    async def of_provider(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        """Those that were not used since, longest unused first."""
        ...
