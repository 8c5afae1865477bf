"""The rounds over Modal sandboxes: those in use are kept alive, idle ones stopped, old ones archived."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import modal

from core.domain.errors import SandboxUnavailable, StorageUnavailable
from core.domain.sandbox_records import SandboxRecord
from core.tasks import cancel, spawn
from sandbox.lifecycle import next_step
from sandbox.modal.account import SDK_ERRORS, ModalAccount
from sandbox.modal.config import BORN_TAG, HOME_TAG, ModalConfig, legal_name
from sandbox.modal.running_sandbox import ModalRunningSandbox
from sandbox.modal.snapshots import ModalSnapshots
from sandbox.running_sandboxes import RunningSandboxes

ROUND_SECONDS = 30.0
LEFT_GRACE_SECONDS = 120.0
"""How much longer a sandbox of another process is left to that process."""

log = logging.getLogger(__name__)


class ModalBackgroundJobs:
    """Begun at the first use of a sandbox. `put_away_left` saves and ends one whose worker is gone;
    False where there is none any more."""

    def __init__(
        self,
        machines: RunningSandboxes,
        vault: ModalSnapshots,
        plan: ModalConfig,
        now: Callable[[], float],
        put_away_left: Callable[[SandboxRecord], Awaitable[bool]],
    ) -> None:
        self._machines = machines
        self._vault = vault
        self._plan = plan
        self._now = now
        self._put_away_left = put_away_left
        self._used_at: dict[str, float] = {}
        self._gone: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def used(self, thread_id: str) -> None:
        self._used_at[thread_id] = self._now()

    def begin(self) -> None:
        if not self._tasks:
            self._tasks = [
                spawn(self._repeat(self.ping), name="pings of sandboxes"),
                spawn(self._repeat(self.make), name="rounds of sandboxes"),
            ]

    async def close(self) -> None:
        for task in self._tasks:
            await cancel(task)
        self._tasks = []

    async def make(self) -> None:
        """One round: what is due for each sandbox, of this process and of ones that are gone."""
        await _together([self._look(machine) for machine in self._running()])
        patience = self._plan.patience
        mine = {machine.thread_id for machine in self._running()}
        idle = patience.stop_after_seconds + LEFT_GRACE_SECONDS
        left = await self._vault.unused("started", for_seconds=idle)
        mine |= {one.thread_id for one in left if one.provider_ref in self._gone}
        await _together([self._end_left(one) for one in left if one.thread_id not in mine])
        for record in await self._vault.unused(
            "stopped", for_seconds=patience.archive_after_seconds
        ):
            await self._vault.archive(record)

    async def ping(self) -> None:
        """The program inside ends when it hears nothing for long."""
        await _together([_pinged(machine) for machine in self._running()])

    def _running(self) -> list[ModalRunningSandbox]:
        running = self._machines.running().values()
        return [machine for machine in running if isinstance(machine, ModalRunningSandbox)]

    async def _look(self, machine: ModalRunningSandbox) -> None:
        thread_id, now = machine.thread_id, self._now()
        is_busy = machine.connection.is_busy
        if is_busy:
            self.used(thread_id)
        record = await self._vault.record(thread_id)
        used_at = self._used_at.get(thread_id, now)
        if record is not None:
            used_at = max(used_at, record.last_used_at.timestamp())
        step = next_step(
            "started",
            self._plan.patience,
            idle_seconds=now - used_at,
            age_seconds=now - machine.born_at,
            is_busy=is_busy,
        )
        if step == "stop":
            await self._machines.stop(thread_id, machine)
            self._used_at.pop(thread_id, None)
        elif thread_id in self._used_at:
            await self._vault.used(thread_id, self._used_at[thread_id])

    async def _end_left(self, record: SandboxRecord) -> None:
        log.info("thread %s has a sandbox that nobody uses; it is stopped", record.thread_id)
        if not await self._put_away_left(record):
            self._gone.add(record.provider_ref)  # told at its next opening; not looked for again

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await work()
            except (*SDK_ERRORS, StorageUnavailable) as error:
                log.warning("a round over the sandboxes broke off: %s", error)


async def _pinged(machine: ModalRunningSandbox) -> None:
    try:
        await machine.connection.call("ping")
    except SandboxUnavailable as error:
        log.info("the sandbox of thread %s is lost: %s", machine.thread_id, error.detail)


async def _together(works: Sequence[Awaitable[None]]) -> None:
    """All of them; the first failure is logged with the others, and holds up none."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.warning("a sandbox could not be looked after: %s", outcome)


YOUNG_SECONDS = 1800.0
"""One so young may be just about to be remembered."""


async def find_orphaned_sandboxes(
    account: ModalAccount, vault: ModalSnapshots, home: str, now: float
) -> list[modal.Sandbox]:
    """Those of this home alone: others may share the app. Raises the SDK's errors, StorageUnavailable."""
    if not home:
        return []
    app, client = await account.app(), await account.client()
    listed = modal.Sandbox.list.aio(
        app_id=app.app_id, tags={HOME_TAG: legal_name(home)}, client=client
    )
    living = [sandbox async for sandbox in listed]
    in_use = await vault.in_use()
    found: list[modal.Sandbox] = []
    for sandbox in living:
        if sandbox.object_id not in in_use:
            tags = await sandbox.get_tags.aio()
            if now - float(tags.get(BORN_TAG) or 0) >= YOUNG_SECONDS:
                found.append(sandbox)
    return found
