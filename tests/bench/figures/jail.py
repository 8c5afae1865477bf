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
IDLE_JAILS = 60
NEW_JAILS = 6
WORK_SECONDS = 20.0
WORK_PAUSE_SECONDS = 0.4
CHECKED_SECONDS = 0.7  # until the watchdog has looked at a new jail
QUIET_SECONDS = 6.0  # until it measures a jail that is not used rarely


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


async def start_among_60_cpu_ms() -> float:
    """CPU of this process for a new jail with one command and its first check, while 60 idle ones run."""
    costs: list[float] = []
    async with jails() as provider:
        for number in range(IDLE_JAILS):
            await _run_command(provider, f"idle-{number}")
        for number in range(NEW_JAILS):
            before = time.process_time()
            await _run_command(provider, f"new-{number}")
            await asyncio.sleep(CHECKED_SECONDS)
            costs.append((time.process_time() - before) * 1000)
    return median(costs)


async def idle_jail_cpu_ms_a_second() -> float:
    """CPU of this process for one of 60 idle jails while another works: the cost with them, without that without."""
    costs: list[float] = []
    async with jails() as provider:
        for count in (0, IDLE_JAILS):
            for number in range(count):
                await _run_command(provider, f"idle-{number}")
            await asyncio.sleep(QUIET_SECONDS)
            before, end = time.process_time(), time.monotonic() + WORK_SECONDS
            while time.monotonic() < end:
                await _run_command(provider, "work")
                await asyncio.sleep(WORK_PAUSE_SECONDS)
            costs.append((time.process_time() - before) * 1000 / WORK_SECONDS)
    return (costs[1] - costs[0]) / IDLE_JAILS


async def _run_command(provider: LocalSandboxProvider, thread_id: str) -> None:
    sandbox = await provider.open(thread_id, fence=1)
    await sandbox.shell.execute("true", session="default", folder=None, timeout_seconds=10)


JAIL_START = Figure(name="jail_start_ms", unit="ms", bound=80, measure=start_ms)
JAIL_COMMAND = Figure(name="jail_command_ms", unit="ms", bound=3, measure=command_ms)
JAIL_START_AMONG_60 = Figure(name="jail_start_among_60_cpu_ms", unit="ms", bound=40, measure=start_among_60_cpu_ms)
IDLE_JAIL = Figure(name="idle_jail_cpu_ms_a_second", unit="ms/s", bound=0.05, measure=idle_jail_cpu_ms_a_second)
