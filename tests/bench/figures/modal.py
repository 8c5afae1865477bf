"""What our part costs of a sandbox at Modal: the account is simulated on this machine, and starts at once."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median

from sandbox.modal.provider import ModalSandboxProvider
from simulator.modal.world import Pace
from tests.bench.figure import Figure
from tests.support.modal_stage import modal_stage

STARTS = 15
COMMANDS = 100
SETTLING = 10


@asynccontextmanager
async def sandboxes() -> AsyncGenerator[ModalSandboxProvider]:
    async with modal_stage(pace=Pace(end_seconds=(0, 0))) as stage:
        provider = stage.worker()
        await provider.open("first", fence=1)  # makes the image
        yield provider


async def create_ms() -> float:
    """From `open` for a thread without a sandbox to the exit code of its first command."""
    walls: list[float] = []
    async with sandboxes() as provider:
        for number in range(STARTS):
            started = time.perf_counter()
            sandbox = await provider.open(f"start-{number}", fence=1)
            await sandbox.shell.execute("true", session="a", folder=None, timeout_seconds=10)
            walls.append((time.perf_counter() - started) * 1000)
            await provider.destroy(f"start-{number}")
    return median(walls)


async def command_ms() -> float:
    """`true` in a session that is there already, from the call to its exit code."""
    walls: list[float] = []
    async with sandboxes() as provider:
        shell = (await provider.open("commands", fence=1)).shell
        for _ in range(SETTLING + COMMANDS):
            started = time.perf_counter()
            await shell.execute("true", session="a", folder=None, timeout_seconds=10)
            walls.append((time.perf_counter() - started) * 1000)
    return median(walls[SETTLING:])


MODAL_CREATE = Figure(name="modal_create_ms", unit="ms", bound=80, measure=create_ms)
MODAL_COMMAND = Figure(name="modal_command_ms", unit="ms", bound=15, measure=command_ms)
