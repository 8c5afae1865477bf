"""The real client library loses its connection in every way and goes on."""

import discord
import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Bot, connected
from tests.support.narrow import require_type
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


async def test_after_a_lost_session_the_client_identifies_anew_and_history_has_what_it_missed(
    simulator: DiscordSimulator,
) -> None:
    async with connected() as bot:
        simulator.misbehave("invalid_session")
        simulator.misbehave("reconnect")
        await simulator.say("alice", GENERAL, "missed")
        await until(lambda: len(bot.of("ready")) == 2)
        assert contents(bot) == []
        channel = require_type(bot.get_channel(int(GENERAL)), discord.TextChannel)
        assert [message.content async for message in channel.history()] == ["missed"]


async def test_two_clients_hear_the_same(simulator: DiscordSimulator) -> None:
    async with connected() as first, connected() as second:
        await simulator.say("alice", GENERAL, "to both")
        await until(lambda: contents(first) == contents(second) == ["to both"])


async def test_everything_a_person_does_is_heard(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        message_id = await simulator.say("alice", GENERAL, "hello @bob and @threadhand")
        await until(lambda: contents(bot))
        await simulator.edit("alice", GENERAL, message_id, "hello again")
        await until(lambda: bot.of("message_edit"))
        await simulator.react("bob", GENERAL, message_id, "❌")
        await simulator.react("bob", GENERAL, message_id, "❌", is_removed=True)
        await until(lambda: bot.of("raw_reaction_remove"))
        added = require_type(bot.of("raw_reaction_add")[0], discord.RawReactionActionEvent)
        assert (added.emoji.name, added.member.name if added.member else "") == ("❌", "bob")
        await simulator.delete("alice", GENERAL, message_id)
        await until(lambda: bot.of("message_delete"))
        await simulator.say("bob", "5002", "in private")
        await until(lambda: len(contents(bot)) == 2)
        direct = require_type(bot.of("message")[1], discord.Message)
        assert isinstance(direct.channel, discord.DMChannel)
        await direct.channel.send("answer")
        assert len(simulator.view().channels[3].messages) == 2
