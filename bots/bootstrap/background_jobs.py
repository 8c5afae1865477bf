"""Periodic jobs that send heartbeats, requeue orphaned runs and delete expired data."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from core.domain.errors import AgentError, StorageUnavailable
from core.ports import RunQueue
from core.run.worker import HEARTBEAT_SECONDS

log = logging.getLogger(__name__)

EVENT_RETENTION_HOURS = 24
DEDUPE_KEY_RETENTION_DAYS = 30
"""How long dedupe keys are kept: much longer than platforms redeliver events or API clients repeat requests."""
DELETION_INTERVAL_SECONDS = 3600.0
APPROVAL_INTERVAL_SECONDS = 60.0
ORPHAN_INTERVAL_SECONDS = 5.0


class HeartbeatStore(Protocol):
    async def heartbeat(self, worker_id: str) -> None: ...


class OrphanedRunStore(Protocol):
    async def claimable_runs(self) -> tuple[str, ...]: ...


class EventStore(Protocol):
    async def sweep_events(self, *, older_than_hours: float) -> int: ...


class ExpiringStore(Protocol):
    async def sweep(self, *, older_than_days: float) -> int: ...


class InactiveStore(Protocol):
    async def inactive(self, before: datetime, *, limit: int) -> tuple[str, ...]: ...


class SessionStore(Protocol):
    async def delete_dead(self) -> None: ...


class ApprovalStore(Protocol):
    async def expire_approvals(self, *, older_than_hours: float) -> tuple[str, ...]: ...


async def send_heartbeats(store: HeartbeatStore, worker_id: str) -> None:
    """Sends heartbeats for a process that only delivers runs. Processes with a worker send their own heartbeats."""
    await _repeat(lambda: store.heartbeat(worker_id), HEARTBEAT_SECONDS, "the heartbeat failed")


async def requeue_orphaned_runs(store: OrphanedRunStore, queue: RunQueue) -> None:
    """Requeues runs whose worker died. Needed only if no worker process looks for them."""

    async def requeue() -> None:
        for run_id in await store.claimable_runs():
            await queue.put(run_id)

    await _repeat(requeue, ORPHAN_INTERVAL_SECONDS, "orphaned runs were not looked up")


async def delete_old_events(store: EventStore) -> None:
    await _repeat(
        _until_zero(lambda: store.sweep_events(older_than_hours=EVENT_RETENTION_HOURS)),
        DELETION_INTERVAL_SECONDS,
        "old events were not deleted",
    )


async def delete_old_dedupe_keys(store: ExpiringStore) -> None:
    await _repeat(
        _until_zero(lambda: store.sweep(older_than_days=DEDUPE_KEY_RETENTION_DAYS)),
        DELETION_INTERVAL_SECONDS,
        "old dedupe keys were not deleted",
    )


async def delete_old_audit_entries(store: ExpiringStore, days: int) -> None:
    """Deletes audit entries older than `days` days. If `days` is 0, returns immediately and keeps all entries."""
    if days:
        await _repeat(
            _until_zero(lambda: store.sweep(older_than_days=days)),
            DELETION_INTERVAL_SECONDS,
            "old audit entries were not deleted",
        )


async def delete_old_conversations(store: InactiveStore, forget: Callable[[str], Awaitable[None]], days: int) -> None:
    """Deletes conversations without activity for `days` days, with their sandboxes. If `days` is 0, keeps them all."""

    failed = 0

    async def delete_batch() -> int:
        nonlocal failed
        before = datetime.now(UTC) - timedelta(days=days)
        found = await store.inactive(before, limit=50 + failed)
        known, failed = failed, 0
        for thread_id in found:
            try:
                await forget(thread_id)
            except (AgentError, OSError) as error:
                failed += 1
                log.warning("the old conversation %s was not deleted: %s", thread_id, error)
        return len(found) - known

    if days:
        await _repeat(_until_zero(delete_batch), DELETION_INTERVAL_SECONDS, "old conversations were not deleted")


async def delete_dead_mcp_sessions(sessions: SessionStore) -> None:
    await _repeat(sessions.delete_dead, DELETION_INTERVAL_SECONDS, "dead MCP sessions were not deleted")


async def expire_old_approvals(store: ApprovalStore, hours: float) -> None:
    """Expires approval requests older than `hours` hours. Workers then resume the runs that waited for them."""
    await _repeat(
        lambda: store.expire_approvals(older_than_hours=hours),
        APPROVAL_INTERVAL_SECONDS,
        "old approvals were not ended",
    )


def _until_zero(delete_batch: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[None]]:
    """Returns a job that calls `delete_batch` until it deletes nothing.

    Each batch is a separate transaction, so other writers never wait long.
    """

    async def delete_all() -> None:
        while await delete_batch():
            pass

    return delete_all


async def _repeat(job: Callable[[], Awaitable[object]], seconds: float, failure: str) -> None:
    while True:
        try:
            await job()
        except StorageUnavailable as error:
            log.warning("%s: %s", failure, error)
        except Exception:  # a job that ends is never begun again
            log.exception("%s", failure)
        await asyncio.sleep(seconds)
