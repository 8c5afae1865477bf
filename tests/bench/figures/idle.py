"""What the program costs while nobody talks to it: how often it wakes up, and its CPU time."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.figure import Figure
from tests.bench.program import SILENCE, Program, program

QUIET_SECONDS = 25.0  # it looks for work more often just after its start
MEASURED_SECONDS = 20.0


def _wakeups(running: Program) -> int:
    """The voluntary context switches of all threads: a thread that slept was woken."""
    statuses = Path(f"/proc/{running.process.pid}/task").glob("*/status")
    lines = (line for status in statuses for line in status.read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))


def _cpu_ms(running: Program) -> float:
    stats = Path(f"/proc/{running.process.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e6


async def _of_a_second(count: Callable[[Program], float]) -> float:
    async with program(SILENCE) as running:
        await asyncio.sleep(QUIET_SECONDS)
        before = count(running)
        await asyncio.sleep(MEASURED_SECONDS)
        return (count(running) - before) / MEASURED_SECONDS


IDLE_WAKEUPS = Figure(name="idle_wakeups_a_second", unit="1/s", bound=5, measure=partial(_of_a_second, _wakeups))
IDLE_CPU = Figure(name="idle_cpu_ms_a_second", unit="ms/s", bound=1, measure=partial(_of_a_second, _cpu_ms))
