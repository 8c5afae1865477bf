"""The chats that the bot is in, for those who only know an address."""

from bots.bootstrap.platforms import Platforms
from core.domain.threads import Address


async def test_over_http_nothing_is_posted_not_even_that_the_agent_is_gone() -> None:
    over_http = Address(platform="api", workspace_id="api", channel_id="api", thread_key="t")
    assert await Platforms(file_sources={}).post_notice(over_http, "There is no agent `research`.") == ""
