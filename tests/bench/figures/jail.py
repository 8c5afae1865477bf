"""How long a jail takes to start, and a command in it to come back."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from sandbox.lifecycle_policy import LifecyclePolicy
from sandbox.local.provider import LocalSandboxProvider
from tests.bench.figure import Figure, Unmeasurable
from tests.bench.program import passable_folder

STARTS = 20
COMMANDS = 200
SETTLING = 20
PAUSE_SECONDS = 0.05


@asynccontextmanager
async def jails(lifecycle_policy: LifecyclePolicy | None = None) -> AsyncGenerator[LocalSandboxProvider]:
    """The provider, tried out. Raises Unmeasurable where this machine allows no jail."""
    with passable_folder() as folder:
        provider = LocalSandboxProvider(
            Path(folder) / "sandboxes", lifecycle_policy=lifecycle_policy or LifecyclePolicy()
        )
        try:
            tried = await provider.probe()
            if not tried.ok:
                raise Unmeasurable(tried.reason)
            yield provider
        finally:
            await provider.close()


async def start_ms() -> float:
    """From `open` for a thread without a sandbox to a sandbox that has greeted."""
    walls: list[float] = []
    async with jails() as provider:
        for number in range(STARTS):
            started = time.perf_counter()
            sandbox = await provider.open(f"start-{number}", fence=1)
            walls.append((time.perf_counter() - started) * 1000)
            await sandbox.close()
    return median(walls)


async def command_ms() -> float:
    """`true` in a session that is there already, from the call to its exit code. A model takes longer than
    PAUSE_SECONDS for its next call, and the sandbox starts the next shell meanwhile."""
    walls: list[float] = []
    async with jails() as provider:
        shell = (await provider.open("commands", fence=1)).shell
        for _ in range(SETTLING + COMMANDS):
            await asyncio.sleep(PAUSE_SECONDS)
            started = time.perf_counter()
            result = await shell.execute("true", session="default", folder=None, timeout_seconds=10)
            walls.append((time.perf_counter() - started) * 1000)
            assert result.exit_code == 0
    return median(walls[SETTLING:])


JAIL_START = Figure(name="jail_start_ms", unit="ms", bound=80, measure=start_ms)
JAIL_COMMAND = Figure(name="jail_command_ms", unit="ms", bound=3, measure=command_ms)
