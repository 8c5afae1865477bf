"""Snapshots of Modal sandboxes and their records. A new snapshot is recorded before the old one is deleted."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol, cast

import modal
import modal.experimental

from core.domain.sandbox_records import SandboxRecord, SandboxRecords, SandboxState
from core.failpoints import Failpoint
from sandbox.modal.account import GONE, SDK_ERRORS, ModalAccount, describe_sdk_error
from sandbox.modal.config import ModalConfig

PROVIDER = "modal"
AHEAD_SECONDS = 3600
"""How far the clock of another process may be ahead."""
SNAPSHOT = Failpoint("modal.snapshot")
DELETE_IMAGE = Failpoint("modal.delete_image")

log = logging.getLogger(__name__)


class _DeleteImage(Protocol):
    """The SDK's types omit the asynchronous variant."""

    async def aio(self, image_id: str, *, client: modal.Client) -> None: ...


_delete_image = cast(_DeleteImage, modal.experimental.image_delete)


class ModalSnapshots:
    """`now` returns Unix time in seconds."""

    def __init__(
        self,
        account: ModalAccount,
        records: SandboxRecords,
        plan: ModalConfig,
        now: Callable[[], float],
    ) -> None:
        self._account = account
        self._records = records
        self._plan = plan
        self._now = now
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find_record(self, thread_id: str) -> SandboxRecord | None:
        return await self._records.find(PROVIDER, thread_id)

    async def unused_records(
        self, state: SandboxState, *, for_seconds: float
    ) -> tuple[SandboxRecord, ...]:
        since = self._to_datetime(self._now() - for_seconds)
        return await self._records.of_provider(PROVIDER, states=[state], unused_since=since)

    async def record_started(
        self, thread_id: str, sandbox_id: str, *, snapshot_ref: str | None
    ) -> bool:
        """Records the sandbox as the thread's. Returns False if the thread was deleted."""
        for _ in range(3):  # another process may write at the same moment
            before = await self.find_record(thread_id)
            fresh = SandboxRecord(
                thread_id=thread_id,
                provider=PROVIDER,
                provider_ref=sandbox_id,
                state="started",
                snapshot_ref=snapshot_ref,
                last_used_at=self._to_datetime(self._now()),
            )
            if await self._records.replace(fresh, expected=before):
                return True
        return False

    async def record_use(self, thread_id: str, at: float) -> None:
        """Records the use for other processes."""
        before = await self.find_record(thread_id)
        if before is not None and before.last_used_at < (moment := self._to_datetime(at)):
            await self._records.replace(replace(before, last_used_at=moment), expected=before)

    async def sandbox_ids_in_use(self) -> frozenset[str]:
        """Returns the ids of the sandboxes that belong to a thread."""
        started = await self.unused_records("started", for_seconds=-AHEAD_SECONDS)
        return frozenset(record.provider_ref for record in started)

    async def archive(self, record: SandboxRecord) -> None:
        await self._records.replace(replace(record, state="archived"), expected=record)

    async def save(self, thread_id: str, sandbox: modal.Sandbox, state: SandboxState) -> bool:
        """Takes a snapshot, records it, and only then deletes the previous one. Returns False if the sandbox is no
        longer the thread's. If it raises one of the SDK's errors, nothing has changed."""
        async with self._locks[thread_id]:
            with SNAPSHOT:
                image = await sandbox.snapshot_filesystem.aio(
                    timeout=int(self._plan.snapshot_seconds), ttl=self._plan.snapshot_ttl_seconds
                )
            before = await self.find_record(thread_id)
            is_ours = before is not None and before.provider_ref == sandbox.object_id
            is_late = before is not None and state == "started" != before.state
            if before is None or not is_ours or is_late:
                await self.delete_snapshot(image.object_id)
                return False
            after = replace(before, state=state, snapshot_ref=image.object_id)
            if not await self._records.replace(after, expected=before):
                await self.delete_snapshot(image.object_id)
                return False
            if before.snapshot_ref:
                await self.delete_snapshot(before.snapshot_ref)
            return True

    async def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread's snapshot and record. Raises the SDK's errors."""
        record = await self.find_record(thread_id)
        if record is None:
            return
        if record.snapshot_ref:
            await self._delete(record.snapshot_ref)
        await self._records.remove(PROVIDER, thread_id)

    async def delete_snapshot(self, image_id: str) -> None:
        """Logs a snapshot that cannot be deleted; it expires by itself."""
        try:
            await self._delete(image_id)
        except SDK_ERRORS as error:
            log.warning(
                "the snapshot %s was not deleted: %s (%s)",
                image_id,
                describe_sdk_error(error)[1],
                error,
            )

    async def _delete(self, image_id: str) -> None:
        client = await self._account.client()
        try:
            with DELETE_IMAGE:
                await _delete_image.aio(image_id, client=client)
        except GONE:
            log.debug("the snapshot %s was gone already", image_id)

    def _to_datetime(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)
