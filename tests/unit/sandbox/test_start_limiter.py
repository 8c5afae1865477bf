"""Who starts while others start."""

import asyncio

import pytest

from sandbox.running_sandboxes import StartLimiter


async def test_they_pass_in_order_and_no_more_than_there_are_places() -> None:
    turnstile, inside, most = StartLimiter(2, wait_seconds_max=60), 0, 0
    came: list[int] = []

    async def start(number: int) -> None:
        nonlocal inside, most
        async with turnstile.acquire_slot():
            came.append(number)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*map(start, range(7)))
    assert (most, came) == (2, list(range(7)))


async def test_a_start_that_fails_gives_its_place_back() -> None:
    turnstile = StartLimiter(1, wait_seconds_max=60)
    async with asyncio.timeout(30):
        for _ in range(3):
            with pytest.raises(OSError):
                async with turnstile.acquire_slot():
                    raise OSError


async def test_a_start_that_hangs_holds_nobody_up_for_long() -> None:
    turnstile, over = StartLimiter(1, wait_seconds_max=0.01), asyncio.Event()

    async def hang() -> None:
        async with turnstile.acquire_slot():
            await over.wait()

    hanging = asyncio.ensure_future(hang())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        for _ in range(3):  # one that went through without a place gives none back
            async with turnstile.acquire_slot():
                assert not hanging.done()
    over.set()
    await hanging
