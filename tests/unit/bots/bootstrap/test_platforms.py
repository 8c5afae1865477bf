"""The chats that the bot is in, for those who only know an address."""

import pytest

from bots.bootstrap.platforms import Platforms
from core.domain.errors import SurfaceRefused
from core.domain.threads import Address
from tests.fakes.surface import ELSEWHERE, FakeSurface


async def test_over_http_nothing_is_posted_not_even_that_the_agent_is_gone() -> None:
    over_http = Address(platform="api", workspace_id="api", channel_id="api", thread_key="t")
    assert await Platforms(file_sources={}).post_notice(over_http, "There is no agent `research`.") == ""


@pytest.mark.parametrize("is_direct_open", [True, False])
async def test_who_takes_no_direct_messages_is_told_in_the_channel(*, is_direct_open: bool) -> None:
    surface, (channel, direct) = FakeSurface(), ELSEWHERE
    surface.closed = set() if is_direct_open else {direct}
    thread = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    await Platforms(file_sources={}, surfaces={"slack": surface}).send_direct_message(thread, "U1", "It is paused.")
    assert [one.address for one in surface.posted] == [direct if is_direct_open else channel]


async def test_a_notice_that_no_place_takes_is_refused() -> None:
    surface = FakeSurface()
    surface.closed = set(ELSEWHERE)
    with pytest.raises(SurfaceRefused):
        await Platforms(file_sources={}, surfaces={"slack": surface}).send_direct_message(ELSEWHERE[0], "U1", "Paused.")
