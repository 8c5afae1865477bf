"""Jobs that a process repeats, such as the deletion of old data."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from core.domain.errors import RunError, StorageUnavailable
from core.ports import RunQueue

log = logging.getLogger(__name__)

EVENT_RETENTION_HOURS = 24
DEDUPE_KEY_RETENTION_DAYS = 30
"""How long dedupe keys are kept: much longer than platforms redeliver events or API clients repeat requests."""
DELETION_INTERVAL_SECONDS = 3600.0
APPROVAL_INTERVAL_SECONDS = 60.0
ORPHAN_INTERVAL_SECONDS = 5.0


class InactiveThreadStore(Protocol):
    async def unbind_inactive_threads(self, before: datetime, *, limit: int) -> tuple[str, ...]: ...


class OrphanedRunStore(Protocol):
    async def claimable_runs(self) -> tuple[str, ...]: ...


async def repeat_job(name: str, seconds: float, job: Callable[[], Awaitable[object]]) -> None:
    """Does the job immediately and then at this interval until cancelled. Logs the exceptions that it raises."""
    while True:
        try:
            await job()
        except StorageUnavailable as error:
            log.warning("%s failed: %s", name, error)
        except Exception:  # an error must not end the loop: nothing restarts it
            log.exception("%s failed", name)
        await asyncio.sleep(seconds)


async def delete_in_batches(delete_batch: Callable[[], Awaitable[int]]) -> None:
    """Calls `delete_batch` until it deletes nothing. Each batch is a transaction, so other writers never wait long."""
    while await delete_batch():
        pass


async def requeue_orphaned_runs(store: OrphanedRunStore, queue: RunQueue) -> None:
    """Requeues runs whose worker died. Needed only if no worker process looks for them."""
    for run_id in await store.claimable_runs():
        await queue.put(run_id)


async def delete_old_conversations(
    store: InactiveThreadStore, forget: Callable[[str], Awaitable[None]], days: int
) -> None:
    """Deletes conversations without activity for `days` days, with their sandboxes."""
    before, failed = datetime.now(UTC) - timedelta(days=days), set[str]()
    while found := set(await store.unbind_inactive_threads(before, limit=50 + len(failed))) - failed:
        for thread_id in found:
            try:
                await forget(thread_id)
            except (RunError, OSError) as error:
                failed.add(thread_id)
                log.warning("the old conversation %s was not deleted: %s", thread_id, error)
