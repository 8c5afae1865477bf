"""The reading of channels: in order, gaps filled first, the cursor never past a gap."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import discord
import pytest

from bots.discord.gateway.backfill import record_new_channels
from bots.discord.gateway.cursors import ChannelCursors
from tests.support.waiting import until


class FakeCursors:
    def __init__(self, **stored: str) -> None:
        self.stored = {key.removeprefix("c"): value for key, value in stored.items()}

    async def advance_cursors(self, platform: str, cursors: Mapping[str, str]) -> None:
        self.stored |= cursors

    async def cursors(self, platform: str) -> dict[str, str]:
        return dict(self.stored)


class History:
    """What Discord would tell of the past."""

    def __init__(self) -> None:
        self.fills: list[tuple[int, int]] = []
        self.failures = 0

    async def fill(self, channel_id: int, after: int) -> None:
        self.fills.append((channel_id, after))
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no history")


async def test_the_first_message_after_a_new_session_waits_for_the_gap_to_be_filled() -> None:
    history, cursors = History(), FakeCursors(c7="100")
    channel_cursors = ChannelCursors(cursors, history.fill)
    channel_cursors.start_session()
    async with channel_cursors.handle_in_order(7, 105):
        assert history.fills == [(7, 100)]
        assert cursors.stored == {"7": "100"}
    async with channel_cursors.handle_in_order(7, 106):
        pass
    assert history.fills == [(7, 100)]
    await channel_cursors.close()
    assert cursors.stored == {"7": "106"}


async def test_a_channel_without_a_cursor_has_no_gap() -> None:
    history, cursors = History(), FakeCursors()
    channel_cursors = ChannelCursors(cursors, history.fill)
    async with channel_cursors.handle_in_order(7, 105):
        pass
    await channel_cursors.close()
    assert (history.fills, cursors.stored) == ([], {"7": "105"})


async def test_messages_of_one_channel_are_handled_one_after_the_other() -> None:
    channel_cursors = ChannelCursors(FakeCursors(), History().fill)
    seen: list[str] = []

    async def handle(message_id: int) -> None:
        async with channel_cursors.handle_in_order(7, message_id):
            seen.append(f"begin {message_id}")
            await asyncio.sleep(0.001)
            seen.append(f"end {message_id}")

    await asyncio.gather(handle(1), handle(2))
    await channel_cursors.close()
    assert seen == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_a_message_that_failed_holds_the_cursor_and_is_read_again_by_itself() -> None:
    history, cursors = History(), FakeCursors(c7="100")
    history.failures = 0
    channel_cursors = ChannelCursors(cursors, history.fill, retry_seconds=0.001)
    channel_cursors.mark_current(7)
    with pytest.raises(RuntimeError, match="disk"):
        async with channel_cursors.handle_in_order(7, 105):
            raise RuntimeError("disk")
    assert cursors.stored == {"7": "100"}
    await until(lambda: history.fills == [(7, 100)])
    await channel_cursors.close()


async def test_the_first_message_of_a_channel_that_failed_is_read_again_too() -> None:
    history = History()
    channel_cursors = ChannelCursors(FakeCursors(), history.fill, retry_seconds=0.001)
    with pytest.raises(RuntimeError):
        async with channel_cursors.handle_in_order(7, 105):
            raise RuntimeError
    await until(lambda: history.fills == [(7, 104)])
    await channel_cursors.close()


async def test_a_gap_that_cannot_be_filled_is_tried_again_and_nothing_passes_it() -> None:
    history, cursors = History(), FakeCursors(c7="100")
    history.failures = 1
    channel_cursors = ChannelCursors(cursors, history.fill, retry_seconds=0.001)
    with pytest.raises(RuntimeError, match="no history"):
        async with channel_cursors.handle_in_order(7, 105):
            pytest.fail("handled across a gap")
    assert cursors.stored == {"7": "100"}
    await until(lambda: len(history.fills) == 2)
    await channel_cursors.close()


async def test_chatter_moves_the_cursor_but_not_past_a_gap() -> None:
    history, cursors = History(), FakeCursors(c7="100", c8="100")
    channel_cursors = ChannelCursors(cursors, history.fill)
    channel_cursors.mark_current(7)
    await channel_cursors.record_unaddressed(7, 105)
    history.failures = 1
    with pytest.raises(RuntimeError, match="no history"):
        await channel_cursors.record_unaddressed(8, 105)
    await channel_cursors.record_unaddressed(8, 106)
    await channel_cursors.close()
    assert (history.fills, cursors.stored) == ([(8, 100)], {"7": "105", "8": "100"})


def channel(channel_id: int, newest: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(id=channel_id, last_message_id=newest)


async def recorded(guild: SimpleNamespace, **stored: str) -> tuple[History, dict[str, str]]:
    """The gaps that the first messages of all channels fill, and the cursors before them."""
    history, cursors = History(), FakeCursors(**stored)
    channel_cursors = ChannelCursors(cursors, history.fill)
    channel_cursors.start_session()
    await record_new_channels(cast(discord.Guild, guild), channel_cursors)
    await channel_cursors.close()
    before = dict(cursors.stored)
    for one in (*guild.text_channels, *guild.threads):
        async with channel_cursors.handle_in_order(one.id, 9_000):
            pass
    await channel_cursors.close()
    return history, before


async def test_channels_and_threads_opened_while_the_bot_was_away_are_read() -> None:
    guild = SimpleNamespace(
        id=1, text_channels=[channel(100, 5_900), channel(5_500, 5_800), channel(200)], threads=[channel(5_600, 5_700)]
    )
    history, before = await recorded(guild, c100="5000")
    assert before == {"100": "5000", "5500": "5500", "200": "5000", "5600": "5600"}
    assert history.fills == [(100, 5_000), (5_500, 5_500), (200, 5_000), (5_600, 5_600)]


async def test_the_past_of_a_new_guild_is_not_read() -> None:
    guild = SimpleNamespace(id=1, text_channels=[channel(100, 5_900)], threads=[channel(5_600)])
    history, before = await recorded(guild)
    assert (history.fills, before) == ([], {"100": "5900", "5600": "5600"})
