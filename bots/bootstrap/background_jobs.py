"""What has to be done from time to time: old events and entries are deleted, and approvals that nobody gives end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from core.domain.errors import StorageUnavailable
from core.ports import RunQueue
from core.run.worker import HEARTBEAT_SECONDS

log = logging.getLogger(__name__)

EVENTS_KEPT_HOURS = 24
EVENTS_PAUSE_SECONDS = 3600.0
AUDIT_PAUSE_SECONDS = 3600.0
KEYS_KEPT_DAYS = 30
KEYS_PAUSE_SECONDS = 3600.0
SESSIONS_PAUSE_SECONDS = 3600.0
APPROVALS_PAUSE_SECONDS = 60.0
LEFT_PAUSE_SECONDS = 5.0


class Hearts(Protocol):
    async def heartbeat(self, worker_id: str) -> None: ...


class Claims(Protocol):
    async def claimable_runs(self) -> tuple[str, ...]: ...


class Events(Protocol):
    async def sweep_events(self, *, older_than_hours: float) -> int: ...


class Aging(Protocol):
    async def sweep(self, *, older_than_days: float) -> int: ...


class Sessions(Protocol):
    async def bury(self) -> None: ...


class Approvals(Protocol):
    async def expire_approvals(self, *, older_than_hours: float) -> tuple[str, ...]: ...


async def send_heartbeats(hearts: Hearts, worker_id: str) -> None:
    """A process that shows runs is alive too; a worker's heart beats by itself."""
    await _ever(lambda: hearts.heartbeat(worker_id), HEARTBEAT_SECONDS, "the heartbeat failed")


async def requeue_orphaned_runs(claims: Claims, queue: RunQueue) -> None:
    """What nobody executes is put in the queue again, where no worker is that would see it."""

    async def put() -> None:
        for run_id in await claims.claimable_runs():
            await queue.put(run_id)

    await _ever(put, LEFT_PAUSE_SECONDS, "runs that were left were not found")


async def delete_old_events(events: Events) -> None:
    """Streams are kept for a day after the run's end."""
    await _ever(
        _until_none(lambda: events.sweep_events(older_than_hours=EVENTS_KEPT_HOURS)),
        EVENTS_PAUSE_SECONDS,
        "old events were not deleted",
    )


async def delete_old_dedupe_keys(inbox: Aging) -> None:
    """Long after any platform tells again, or any caller repeats, what they were claimed for."""
    await _ever(
        _until_none(lambda: inbox.sweep(older_than_days=KEYS_KEPT_DAYS)),
        KEYS_PAUSE_SECONDS,
        "old keys were not deleted",
    )


async def delete_old_audit_entries(audit: Aging, days: int) -> None:
    """0 days: entries are kept for ever."""
    if days:
        await _ever(
            _until_none(lambda: audit.sweep(older_than_days=days)),
            AUDIT_PAUSE_SECONDS,
            "old audit entries were not deleted",
        )


async def delete_dead_mcp_sessions(sessions: Sessions) -> None:
    """What clients of tools have left whose session was killed."""
    await _ever(sessions.bury, SESSIONS_PAUSE_SECONDS, "killed sessions were not cleared away")


async def expire_old_approvals(approvals: Approvals, hours: float) -> None:
    """A sweeper of the workers finds the runs that are queued by it."""
    await _ever(
        lambda: approvals.expire_approvals(older_than_hours=hours),
        APPROVALS_PAUSE_SECONDS,
        "old approvals were not ended",
    )


def _until_none(sweep: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[None]]:
    """In batches, each a transaction of its own, so that nobody waits long."""

    async def swept() -> None:
        while await sweep():
            pass

    return swept


async def _ever(chore: Callable[[], Awaitable[object]], pause_seconds: float, failed: str) -> None:
    while True:
        try:
            await chore()
        except StorageUnavailable as error:
            log.warning("%s: %s", failed, error)
        await asyncio.sleep(pause_seconds)
