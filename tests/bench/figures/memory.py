"""What the program holds in memory while nobody talks to it."""

import asyncio

from tests.bench.figure import Figure
from tests.bench.program import SILENCE, program

IDLE_SECONDS = 3.0


async def idle_rss_mb() -> float:
    """Connected to both platforms, no model called yet; with all child processes."""
    async with program(SILENCE, slack=True, discord=True) as running:
        await asyncio.sleep(IDLE_SECONDS)
        return running.resident_bytes() / 1_000_000


IDLE_RSS = Figure(name="idle_rss_mb", unit="MB", bound=150, measure=idle_rss_mb)
