"""Snapshots of Modal sandboxes and their records.

A snapshot is deleted only after its successor was read back and recorded."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import modal
import modal.exception
import modal.experimental

from core.domain.sandbox_records import SandboxRecord, SandboxRecords, SandboxState
from core.failpoints import Failpoint
from sandbox.modal.account import GONE, SDK_ERRORS, ModalAccount, describe_sdk_error
from sandbox.modal.config import ModalConfig

PROVIDER = "modal"
ANY_TIME = datetime(9999, 1, 1, tzinfo=UTC)
END_SECONDS_MAX = 60.0
"""A sandbox that was terminated ends after up to 35 s."""
EXIT_SNAPSHOT_SECONDS_MAX = 3600
"""How long to keep asking Modal for the files of a sandbox that has ended because nobody used it."""
LOOKUPS = 3
LOOKUP_PAUSE_SECONDS = 1.0
ResultT = TypeVar("ResultT")
SNAPSHOT = Failpoint("modal.snapshot")
DELETE_IMAGE = Failpoint("modal.delete_image")

log = logging.getLogger(__name__)


class _DeleteImage(Protocol):
    """The SDK's types omit the asynchronous variant."""

    async def aio(self, image_id: str, *, client: modal.Client) -> None: ...


_delete_image = cast(_DeleteImage, modal.experimental.image_delete)


class _ExitSnapshotOf(Protocol):
    async def aio(self, *, timeout: float) -> modal.Image: ...


NO_EXIT_SNAPSHOT = (modal.exception.SnapshotCreationError, modal.exception.InvalidError, modal.exception.DataLossError)
"""The last files of the sandbox could not be saved or are lost, or it was created without exit snapshots."""


async def retry_not_found(find: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
    """Returns None only if it is not found several times in a row: Modal has denied images that it had."""
    for attempt in range(1, LOOKUPS + 1):
        try:
            return await find()
        except modal.exception.NotFoundError as error:
            log.info("not found at Modal, attempt %d: %s", attempt, error)
        if attempt < LOOKUPS:
            await asyncio.sleep(LOOKUP_PAUSE_SECONDS)
    return None


class ModalSnapshots:
    """`now` returns Unix time in seconds."""

    def __init__(
        self, account: ModalAccount, records: SandboxRecords, plan: ModalConfig, now: Callable[[], float]
    ) -> None:
        self._account = account
        self._records = records
        self._plan = plan
        self._now = now
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._not_found: set[str] = set()

    async def find_record(self, thread_id: str) -> SandboxRecord | None:
        return await self._records.find(PROVIDER, thread_id)

    async def unused_records(self, state: SandboxState, *, for_seconds: float) -> tuple[SandboxRecord, ...]:
        since = self._to_datetime(self._now() - for_seconds)
        return await self._records.list_unused(PROVIDER, states=[state], unused_since=since)

    async def record_started(self, thread_id: str, sandbox_id: str, *, expected: SandboxRecord | None) -> bool:
        """Records the sandbox as the thread's, which keeps its snapshot until the next one is saved. Returns False if
        another process has changed the record since, or the thread was deleted."""
        fresh = SandboxRecord(
            thread_id=thread_id,
            provider=PROVIDER,
            provider_ref=sandbox_id,
            state="started",
            snapshot_ref=expected.snapshot_ref if expected else None,
            last_used_at=self._to_datetime(self._now()),
        )
        return await self._records.replace(fresh, expected=expected)

    async def record_use(self, thread_id: str, at: float) -> None:
        """Records the use for other processes."""
        before = await self.find_record(thread_id)
        if before is not None and before.last_used_at < (moment := self._to_datetime(at)):
            await self._records.replace(replace(before, last_used_at=moment), expected=before)

    async def sandbox_ids_of_threads(self) -> frozenset[str]:
        """Returns the ids of the sandboxes that belong to a thread."""
        found = await self._records.list_unused(PROVIDER, states=["started"], unused_since=ANY_TIME)
        return frozenset(record.provider_ref for record in found)

    async def mark_archived(self, record: SandboxRecord) -> None:
        """Marks the record as archived. Also deletes Modal's own snapshot of the sandbox's end, because the thread's
        snapshot contains the same files."""
        if await self._records.replace(replace(record, state="archived"), expected=record):
            await self.delete_exit_snapshot(record.thread_id, record.provider_ref, seconds=0)

    async def save(
        self, thread_id: str, sandbox: modal.Sandbox, state: SandboxState, *, unused: SandboxRecord | None = None
    ) -> bool:
        """Takes a snapshot, reads it back, records it, and only then deletes the previous one. Returns False if the
        sandbox is no longer the thread's, or is to be stopped and was used meanwhile, or since `unused` was read. If it
        raises one of the SDK's errors, nothing has changed."""
        async with self._locks.setdefault(thread_id, asyncio.Lock()):
            unused = unused or await self.find_record(thread_id)
            with SNAPSHOT:
                image = await sandbox.snapshot_filesystem.aio(
                    timeout=int(self._plan.snapshot_seconds), ttl=self._plan.snapshot_ttl_seconds
                )
            before = await self.find_record(thread_id)
            is_ours = before and before.provider_ref == sandbox.object_id
            is_same = before == unused if state == "stopped" else before and before.state == state
            if not before or not is_ours or not is_same:
                await self.delete_snapshot(image.object_id)
                return False
            if await self.find_saved_image(image.object_id) is None:
                raise modal.exception.DataLossError(f"the new snapshot {image.object_id} cannot be read back")
            return await self._replace_snapshot(before, image.object_id, state)

    async def record_exit_snapshot(self, record: SandboxRecord, *, seconds: float, has_ended: bool) -> bool:
        """Records the files that Modal saved when the sandbox ended as the thread's, like `save`. Returns False if
        there are none, or another process was faster. Waits for the end of the sandbox, but does not wait forever for
        one that `has_ended` long ago; raises the SDK's errors."""

        async def keep(seconds: float) -> bool:
            image_id = await self._find_exit_snapshot(record.provider_ref, seconds)
            if image_id is None or await self.find_saved_image(image_id) is None:
                log.warning("the files of the sandbox %s are lost", record.provider_ref)
                return False
            return await self._replace_snapshot(record, image_id, "stopped")

        return await self._retry(keep, seconds, ended=record if has_ended else None) or False

    async def delete_exit_snapshot(self, thread_id: str, sandbox_id: str, *, seconds: float) -> None:
        """Deletes what Modal saved when the sandbox ended, unless the thread needs it. Raises the SDK's errors."""
        image_id = await self._retry(partial(self._find_exit_snapshot, sandbox_id), seconds)
        record = await self.find_record(thread_id)
        is_its_own = record and (record.provider_ref, record.state) == (sandbox_id, "started")
        if image_id and not is_its_own and not (record and record.snapshot_ref == image_id):
            await self._delete(image_id)

    async def find_saved_image(self, snapshot_ref: str) -> modal.Image | None:
        """Returns the image, or None if Modal no longer has it. Raises the SDK's errors.

        An image that was not found is not deleted later. If it still exists, users may get their files back by hand."""
        app, client = await self._account.app(), await self._account.client()
        found = await retry_not_found(lambda: modal.Image.from_id(snapshot_ref, client=client).build.aio(app))
        if found is None:
            self._not_found.add(snapshot_ref)
        return found

    async def _replace_snapshot(self, before: SandboxRecord, image_id: str, state: SandboxState) -> bool:
        if not await self._records.replace(replace(before, state=state, snapshot_ref=image_id), expected=before):
            newest = await self.find_record(before.thread_id)
            if newest is None or newest.snapshot_ref != image_id:
                await self.delete_snapshot(image_id)
            return False
        if before.snapshot_ref in self._not_found:
            self._not_found.discard(before.snapshot_ref)
            log.warning("the snapshot %s is left to expire: it was not found", before.snapshot_ref)
        elif before.snapshot_ref and before.snapshot_ref != image_id:
            await self.delete_snapshot(before.snapshot_ref)
        return True

    async def _find_exit_snapshot(self, sandbox_id: str, seconds: float) -> str | None:
        client = await self._account.client()

        async def find() -> str:
            sandbox = await modal.Sandbox.from_id.aio(sandbox_id, client=client)
            saved = cast(_ExitSnapshotOf, sandbox._experimental_get_exit_snapshot)  # noqa: SLF001 - the SDK's only way
            return (await saved.aio(timeout=seconds)).object_id

        try:
            return await retry_not_found(find)
        except modal.exception.ConflictError:
            raise  # Modal refuses it now, and may have it
        except NO_EXIT_SNAPSHOT as error:
            log.debug("the sandbox %s left no exit snapshot: %s", sandbox_id, error)
            return None

    async def _retry(
        self, work: Callable[[float], Awaitable[ResultT]], seconds: float, *, ended: SandboxRecord | None = None
    ) -> ResultT | None:
        """Calls `work` with the remaining seconds until it raises none of the SDK's errors. After `seconds`, raises the
        last one, or returns None (logged) if the sandbox of the record `ended` so long ago that waiting is useless."""
        ended_at = ended.last_used_at.timestamp() + self._plan.idle_timeout_seconds if ended else math.inf
        gives_up = self._now() - ended_at >= EXIT_SNAPSHOT_SECONDS_MAX
        clock = asyncio.get_running_loop().time
        deadline = clock() + (min(seconds, self._plan.start_seconds / 2) if gives_up else seconds)
        while True:
            try:
                return await work(max(0.0, deadline - clock()))
            except SDK_ERRORS as error:
                if clock() + LOOKUP_PAUSE_SECONDS >= deadline:
                    if not gives_up:
                        raise
                    log.warning("Modal never returned the last files of %s: %s", ended and ended.provider_ref, error)
                    return None
            await asyncio.sleep(LOOKUP_PAUSE_SECONDS)

    async def delete_thread(self, thread_id: str, sandbox_ids: set[str]) -> None:
        """Deletes the thread's record, its saved snapshot and the exit snapshots of its sandboxes, which have ended.

        `sandbox_ids` are those that ended just now: their exit snapshots may still be written, so they are waited for.
        Raises the SDK's errors."""
        record = await self.find_record(thread_id)
        its_ids = sandbox_ids | ({record.provider_ref} if record else set[str]())
        if record and record.snapshot_ref:
            await self._delete(record.snapshot_ref)
        saved = [
            self._retry(
                partial(self._find_exit_snapshot, one), END_SECONDS_MAX, ended=None if one in sandbox_ids else record
            )
            for one in its_ids
        ]
        for image_id in filter(None, await asyncio.gather(*saved)):
            await self._delete(image_id)
        await self._records.remove(PROVIDER, thread_id)

    async def delete_snapshot(self, image_id: str) -> None:
        """Deletes the snapshot. Only logs a failure, because the snapshot expires anyway."""
        try:
            await self._delete(image_id)
        except SDK_ERRORS as error:
            log.warning("the snapshot %s was not deleted: %s (%s)", image_id, describe_sdk_error(error)[1], error)

    async def _delete(self, image_id: str) -> None:
        client = await self._account.client()
        try:
            with DELETE_IMAGE:
                await _delete_image.aio(image_id, client=client)
        except GONE:
            log.debug("the snapshot %s was gone already", image_id)

    def _to_datetime(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)
