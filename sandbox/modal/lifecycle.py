"""Background jobs for Modal sandboxes: pings those in use, stops idle ones, archives old ones, finds orphans."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import modal

from core.domain.errors import SandboxUnavailable
from core.domain.sandbox_records import SandboxRecord
from core.tasks import cancel, repeat, spawn
from sandbox.lifecycle_policy import next_step
from sandbox.modal.account import SDK_ERRORS, ModalAccount
from sandbox.modal.config import BORN_TAG, HOME_TAG, THREAD_TAG, ModalConfig, legal_name
from sandbox.modal.running_sandbox import ModalRunningSandbox
from sandbox.modal.snapshots import ModalSnapshots
from sandbox.running_sandboxes import RunningSandboxes

ROUND_SECONDS = 30.0
LEFT_GRACE_SECONDS = 120.0
"""How much longer an idle sandbox of another process is left to that process."""

log = logging.getLogger(__name__)


class ModalLifecycle:
    """Started at the first use of a sandbox. `stop_abandoned` saves and terminates a sandbox whose worker is gone, and
    returns False if it no longer exists."""

    def __init__(
        self,
        machines: RunningSandboxes,
        snapshots: ModalSnapshots,
        plan: ModalConfig,
        now: Callable[[], float],
        stop_abandoned: Callable[[SandboxRecord], Awaitable[bool]],
    ) -> None:
        self._machines = machines
        self._snapshots = snapshots
        self._plan = plan
        self._now = now
        self._stop_abandoned = stop_abandoned
        self._used_at: dict[str, float] = {}
        self._missing_refs: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def record_use(self, thread_id: str) -> None:
        self._used_at[thread_id] = self._now()

    def start(self) -> None:
        if not self._tasks:
            self._tasks = [
                spawn(repeat(work, ROUND_SECONDS, "checking the sandboxes failed"), name=name)
                for name, work in (("ping sandboxes", self.ping), ("stop sandboxes", self.run_once))
            ]

    async def close(self) -> None:
        await cancel(*self._tasks)
        self._tasks = []

    async def run_once(self) -> None:
        """Stops or archives every sandbox whose time has come, including those left by processes that have ended."""
        await _gather_logging_errors([self._stop_if_idle(machine) for machine in self._running()])
        lifecycle_policy = self._plan.lifecycle_policy
        mine = {machine.thread_id for machine in self._running()}
        self._used_at = {one: at for one, at in self._used_at.items() if one in mine}
        idle = lifecycle_policy.stop_after_seconds + LEFT_GRACE_SECONDS
        left = await self._snapshots.unused_records("started", for_seconds=idle)
        self._missing_refs &= {one.provider_ref for one in left}
        mine |= {one.thread_id for one in left if one.provider_ref in self._missing_refs}
        await _gather_logging_errors([self._stop_one_abandoned(one) for one in left if one.thread_id not in mine])
        old = await self._snapshots.unused_records("stopped", for_seconds=lifecycle_policy.archive_after_seconds)
        await _gather_logging_errors([self._snapshots.mark_archived(record) for record in old])

    async def ping(self) -> None:
        """Pings all sandboxes, because the program inside ends after a long silence."""
        await _gather_logging_errors([_ping(machine) for machine in self._running()])

    def _running(self) -> list[ModalRunningSandbox]:
        running = self._machines.running_by_thread().values()
        return [machine for machine in running if isinstance(machine, ModalRunningSandbox)]

    async def _stop_if_idle(self, machine: ModalRunningSandbox) -> None:
        thread_id, now, looked_at = machine.thread_id, self._now(), time.monotonic()
        is_busy = machine.connection.is_busy
        if is_busy:
            self.record_use(thread_id)
        record = await self._snapshots.find_record(thread_id)
        used_at = self._used_at.get(thread_id, now)
        if record is not None:
            used_at = max(used_at, record.last_used_at.timestamp())
        step = next_step(
            "started",
            self._plan.lifecycle_policy,
            idle_seconds=now - used_at,
            age_seconds=now - machine.created_at,
            is_busy=is_busy,
        )
        if step == "stop":
            await self._machines.stop(thread_id, machine, unused_since=looked_at)
        elif thread_id in self._used_at:
            await self._snapshots.record_use(thread_id, self._used_at[thread_id])

    async def _stop_one_abandoned(self, record: SandboxRecord) -> None:
        log.info("stopping the abandoned sandbox of thread %s", record.thread_id)
        if not await self._stop_abandoned(record):
            # reported when the thread opens it next; not searched again
            self._missing_refs.add(record.provider_ref)


async def _ping(machine: ModalRunningSandbox) -> None:
    try:
        await machine.connection.call("ping")
    except SandboxUnavailable as error:
        log.info("the sandbox of thread %s is lost: %s", machine.thread_id, error.detail)


async def _gather_logging_errors(works: Sequence[Awaitable[None]]) -> None:
    """Awaits all of them; failures are logged and do not affect the others."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.warning("a sandbox could not be checked: %s", outcome)


YOUNG_SECONDS = 1800.0
"""A younger sandbox may not have its record yet."""


async def find_orphaned_sandboxes(
    account: ModalAccount, snapshots: ModalSnapshots, home: str, now: float
) -> list[tuple[str, modal.Sandbox]]:
    """Returns this home's sandboxes without a record and their threads. Raises the SDK's errors, StorageUnavailable."""
    living = await account.running_sandboxes({HOME_TAG: legal_name(home)}) if home else []
    sandbox_ids_in_use = await snapshots.sandbox_ids_of_threads()
    found: list[tuple[str, modal.Sandbox]] = []
    for sandbox in (one for one in living if one.object_id not in sandbox_ids_in_use):
        try:
            tags = await sandbox.get_tags.aio()
        except SDK_ERRORS as error:  # it may have just ended
            log.warning("a sandbox without a record was not checked: %s", error)
            continue
        if now - float(tags.get(BORN_TAG) or 0) >= YOUNG_SECONDS:
            found.append((tags.get(THREAD_TAG, ""), sandbox))
    return found
