"""The saved files of Modal sandboxes, and what is remembered of them: written before anything old is given up."""

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
"""By which the clock of another process may be ahead of ours."""
SNAPSHOT = Failpoint("modal.snapshot")
DELETE_IMAGE = Failpoint("modal.delete_image")

log = logging.getLogger(__name__)


class _DeleteImage(Protocol):
    """The SDK's types leave out that it can be awaited."""

    async def aio(self, image_id: str, *, client: modal.Client) -> None: ...


_delete_image = cast(_DeleteImage, modal.experimental.image_delete)


class ModalSnapshots:
    """`now` tells the time in seconds since 1970."""

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

    async def record(self, thread_id: str) -> SandboxRecord | None:
        return await self._records.find(PROVIDER, thread_id)

    async def unused(self, state: SandboxState, *, for_seconds: float) -> tuple[SandboxRecord, ...]:
        since = self._moment(self._now() - for_seconds)
        return await self._records.of_provider(PROVIDER, states=[state], unused_since=since)

    async def started(self, thread_id: str, sandbox_id: str, *, snapshot_ref: str | None) -> bool:
        """Remembers the sandbox as the thread's. False where the thread is gone."""
        for _ in range(3):  # another process may write at the same moment
            before = await self.record(thread_id)
            fresh = SandboxRecord(
                thread_id=thread_id,
                provider=PROVIDER,
                provider_ref=sandbox_id,
                state="started",
                snapshot_ref=snapshot_ref,
                last_used_at=self._moment(self._now()),
            )
            if await self._records.replace(fresh, expected=before):
                return True
        return False

    async def used(self, thread_id: str, at: float) -> None:
        """Lets other processes know of the use."""
        before = await self.record(thread_id)
        if before is not None and before.last_used_at < (moment := self._moment(at)):
            await self._records.replace(replace(before, last_used_at=moment), expected=before)

    async def in_use(self) -> frozenset[str]:
        """The ids of the sandboxes that are some thread's."""
        started = await self.unused("started", for_seconds=-AHEAD_SECONDS)
        return frozenset(record.provider_ref for record in started)

    async def archive(self, record: SandboxRecord) -> None:
        await self._records.replace(replace(record, state="archived"), expected=record)

    async def save(self, thread_id: str, sandbox: modal.Sandbox, state: SandboxState) -> bool:
        """Snapshots, remembers, and only then deletes the snapshot before. False where the sandbox is the thread's
        no more. Raises the SDK's errors; then all is as it was."""
        async with self._locks[thread_id]:
            with SNAPSHOT:
                image = await sandbox.snapshot_filesystem.aio(
                    timeout=int(self._plan.snapshot_seconds), ttl=self._plan.snapshot_ttl_seconds
                )
            before = await self.record(thread_id)
            is_ours = before is not None and before.provider_ref == sandbox.object_id
            is_late = before is not None and state == "started" != before.state
            if before is None or not is_ours or is_late:
                await self.delete(image.object_id)
                return False
            after = replace(before, state=state, snapshot_ref=image.object_id)
            if not await self._records.replace(after, expected=before):
                await self.delete(image.object_id)
                return False
            if before.snapshot_ref:
                await self.delete(before.snapshot_ref)
            return True

    async def forget(self, thread_id: str) -> None:
        """Deletes the snapshot and what is remembered. Raises the SDK's errors."""
        record = await self.record(thread_id)
        if record is None:
            return
        if record.snapshot_ref:
            await self._delete(record.snapshot_ref)
        await self._records.remove(PROVIDER, thread_id)

    async def delete(self, image_id: str) -> None:
        """One that cannot be deleted expires by itself."""
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

    def _moment(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)
