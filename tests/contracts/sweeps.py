"""What several processes do that delete what is old, a batch at a time."""

import asyncio
from collections.abc import Awaitable, Callable


async def swept_by(*, processes: int, sweep: Callable[[], Awaitable[int]]) -> int:
    """Each sweeps until it finds nothing more; answers how many all of them say that went."""

    async def process() -> int:
        swept = 0
        while count := await sweep():
            swept += count
        return swept

    return sum(await asyncio.gather(*(process() for _ in range(processes))))
