"""Sandbox records kept in memory, for a single process that needs no persistence."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from core.domain.sandbox_records import SandboxRecord, SandboxState


class MemorySandboxRecords:
    """Satisfies `core.domain.sandbox_records.SandboxRecords`."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], SandboxRecord] = {}

    async def find(self, provider: str, thread_id: str) -> SandboxRecord | None:
        return self._records.get((provider, thread_id))

    async def replace(self, record: SandboxRecord, *, expected: SandboxRecord | None) -> bool:
        key = (record.provider, record.thread_id)
        stored = self._records.get(key)
        if stored is not None and expected is not None:
            stored = replace(stored, last_used_at=expected.last_used_at)
        if stored != expected:
            return False
        self._records[key] = record
        return True

    async def remove(self, provider: str, thread_id: str) -> None:
        self._records.pop((provider, thread_id), None)

    async def list_unused(
        self, provider: str, *, states: Sequence[SandboxState], unused_since: datetime
    ) -> tuple[SandboxRecord, ...]:
        found = (
            record
            for record in self._records.values()
            if record.provider == provider and record.state in states and record.last_used_at < unused_since
        )
        return tuple(sorted(found, key=lambda record: record.last_used_at))
