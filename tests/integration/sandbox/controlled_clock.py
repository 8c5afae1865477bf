"""A folder of local sandboxes whose clock only the test moves."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.limits import SandboxLimits
from sandbox.local.provider import LocalSandboxProvider
from sandbox.local.workspaces import ARCHIVE
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import reachable_folder

MINUTE = 60.0
DEFAULT_LIFECYCLE = LifecyclePolicy(stop_after_seconds=15 * MINUTE, archive_after_seconds=120 * MINUTE)


@dataclass(slots=True)
class Day:
    """A folder of sandboxes whose clock only the test moves."""

    folder: Path
    jails: LocalSandboxProvider
    minutes: float = 0.0

    def now(self) -> float:
        return 1_000_000_000 + self.minutes * MINUTE

    async def passes(self, minutes: float) -> None:
        self.minutes += minutes
        await self.jails.lifecycle.run_once()

    async def restart(self) -> None:
        await self.jails.close()
        self.jails = LocalSandboxProvider(self.folder, lifecycle_policy=DEFAULT_LIFECYCLE, now=self.now)

    @property
    def home(self) -> Path:
        return self.folder / "threads" / "thread"

    @property
    def is_archived(self) -> bool:
        return (self.home / ARCHIVE).is_file() and not (self.home / "workspace").exists()


@asynccontextmanager
async def a_day(limits: SandboxLimits | None = None) -> AsyncGenerator[Day]:
    async with reachable_folder() as folder:
        clock: list[Day] = []
        jails = LocalSandboxProvider(
            folder, limits=limits, lifecycle_policy=DEFAULT_LIFECYCLE, now=lambda: clock[0].now()
        )
        clock.append(Day(folder, jails))
        result = await jails.probe()
        if not result.ok:
            lacking("jail", f"{result.reason} {result.remedy}")
        try:
            yield clock[0]
        finally:
            await clock[0].jails.close()
