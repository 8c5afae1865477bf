"""Waiting for a thread that is just being opened."""

import asyncio

import pytest

from bots.discord.rest.thread_opener import Doors
from core.domain.threads import Address

ADDRESS = Address(platform="discord", workspace_id="1", channel_id="2", thread_key="3")


async def is_settled(doors: Doors) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await doors.settled(ADDRESS)
    except TimeoutError:
        return False
    return True


@pytest.fixture
def doors(world) -> Doors:
    return world.app.client.doors


async def test_nobody_waits_for_a_thread_that_nobody_opens(doors) -> None:
    assert await is_settled(doors)


async def test_who_posts_waits_until_the_opening_has_ended(doors) -> None:
    async with doors.opening("3"):
        assert not await is_settled(doors)
    assert await is_settled(doors)


async def test_an_opening_that_failed_has_ended_too(doors) -> None:
    with pytest.raises(ValueError, match="no"):
        async with doors.opening("3"):
            raise ValueError("no")
    assert await is_settled(doors)


async def test_word_from_discord_ends_the_wait_early(doors) -> None:
    async with doors.opening("3"):
        doors.opened("3")
        assert await is_settled(doors)


async def test_a_thread_that_is_open_already_is_no_error(world, doors) -> None:
    message_id = await world.say("@threadhand hello")
    address = (await world.received()).address
    await world.until(lambda: world.general.threads)
    await doors.open(address, "hello")
    assert [thread.thread_id for thread in world.general.threads] == [message_id]
