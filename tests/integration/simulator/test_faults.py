"""Both platforms misbehave on demand: as often as they are told to, and in the calls that they are told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.slack import SlackSettings, SlackSimulator


@dataclass(frozen=True)
class Caller:
    """Plain calls to one of the platforms. `pattern` names its call that posts, as a fault does."""

    platform: SlackSimulator | DiscordSimulator
    session: aiohttp.ClientSession
    pattern: str
    post_url: str
    read_url: str

    async def post(self, **more: object) -> int:
        place = {"channel": "#general", "text": "a", "content": "a"}
        async with self.session.post(self.post_url, json=place, **more) as response:
            return response.status

    async def read(self) -> int:
        async with self.session.get(self.read_url) as response:
            return response.status

    def posted(self) -> int:
        (channel,) = (one for one in self.platform.view().channels if one.name == "general")
        return len(channel.messages)


@pytest.fixture(params=["slack", "discord"])
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    is_slack = request.param == "slack"
    slack = SlackSimulator(settings=SlackSettings(rate_scale=0, channels=("general",)))
    discord = DiscordSimulator(token="t", channels=("general",), settings=DiscordSettings(rate_limit_scale=0))
    async with slack if is_slack else discord as platform:
        token = f"Bearer {slack.settings.bot_token}" if is_slack else "Bot t"
        api, messages = platform.api_url, "/channels/4001/messages"
        post, read = ("chat.postMessage", "auth.test") if is_slack else (messages, "/users/@me")
        pattern = post if is_slack else f"POST {messages}"
        async with aiohttp.ClientSession(headers={"Authorization": token}) as session:
            yield Caller(platform, session, pattern, api + post, api + read)


@pytest.mark.parametrize(("fault", "messages"), [("server_error", 0), ("error_after", 1)])
async def test_an_error_comes_before_or_after_the_work(caller: Caller, fault: str, messages: int) -> None:
    caller.platform.misbehave(fault, method=caller.pattern)
    assert await caller.read() == 200
    assert (await caller.post(), caller.posted()) == (500, messages)
    assert (await caller.post(), caller.posted()) == (200, messages + 1)


@pytest.mark.parametrize(("fault", "messages"), [("timeout", 0), ("timeout_after", 1)])
async def test_a_response_never_comes(caller: Caller, fault: str, messages: int) -> None:
    caller.platform.misbehave(fault, method=caller.pattern)
    with pytest.raises(TimeoutError):
        await caller.post(timeout=aiohttp.ClientTimeout(total=0.2))
    assert caller.posted() == messages
