"""The real client library loses its connection in every way and goes on."""

import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Bot, connected
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("library")
GENERAL = "4001"


def contents(bot: Bot) -> list[str]:
    return [message.content for message in bot.of("message")]


@pytest.mark.parametrize("fault", ["reconnect", "drop_connection"])
async def test_the_client_resumes_and_hears_what_it_missed(simulator: DiscordSimulator, fault: str) -> None:
    async with connected() as bot:
        simulator.misbehave(fault)
        for text in ("one", "two"):
            await simulator.say("alice", GENERAL, text)
        await until(lambda: bot.of("resumed"))
        await simulator.say("alice", GENERAL, "three")
        await until(lambda: len(contents(bot)) == 3)
        assert contents(bot) == ["one", "two", "three"]
        assert len(bot.of("ready")) == 1
