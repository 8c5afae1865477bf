"""Waiting for a thread that is just being opened."""

import asyncio

import pytest

from bots.discord.rest.thread_opener import ThreadOpener
from core.domain.threads import Address

ADDRESS = Address(platform="discord", workspace_id="1", channel_id="2", thread_key="3")


async def is_settled(thread_opener: ThreadOpener) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await thread_opener.wait_until_open(ADDRESS)
    except TimeoutError:
        return False
    return True


@pytest.fixture
def thread_opener(world) -> ThreadOpener:
    return world.app.client.thread_opener


async def test_nobody_waits_for_a_thread_that_nobody_opens(thread_opener) -> None:
    assert await is_settled(thread_opener)


async def test_who_posts_waits_until_the_opening_has_ended(thread_opener) -> None:
    async with thread_opener.opening("3"):
        assert not await is_settled(thread_opener)
    assert await is_settled(thread_opener)


async def test_an_opening_that_failed_has_ended_too(thread_opener) -> None:
    with pytest.raises(ValueError, match="no"):
        async with thread_opener.opening("3"):
            raise ValueError("no")
    assert await is_settled(thread_opener)


async def test_word_from_discord_ends_the_wait_early(thread_opener) -> None:
    async with thread_opener.opening("3"):
        thread_opener.mark_open("3")
        assert await is_settled(thread_opener)


async def test_a_thread_that_is_open_already_is_no_error(world, thread_opener) -> None:
    message_id = await world.say("@threadhand hello")
    address = (await world.received()).address
    await world.until(lambda: world.general.threads)
    await thread_opener.open_thread(address, "hello")
    assert [thread.thread_id for thread in world.general.threads] == [message_id]
