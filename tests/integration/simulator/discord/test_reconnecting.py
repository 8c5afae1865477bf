"""The real client library loses its connection in every way and goes on."""

import discord
import pytest

from core.tasks import cancel, spawn
from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import TOKEN, Bot, connected, until

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


async def test_a_resumable_invalid_session_is_resumed(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        simulator.gateway.invalidate(is_resumable=True)
        await simulator.say("alice", GENERAL, "meanwhile")
        await until(lambda: contents(bot) == ["meanwhile"])
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
        channel = bot.get_channel(int(GENERAL))
        assert isinstance(channel, discord.TextChannel)
        assert [message.content async for message in channel.history()] == ["missed"]


async def test_a_session_that_expired_means_ready_again(simulator: DiscordSimulator) -> None:
    simulator.settings.session_seconds = 0.0
    async with connected() as bot:
        simulator.misbehave("drop_connection")
        await until(lambda: len(bot.of("ready")) == 2)


async def test_a_wrong_token_ends_the_login(simulator: DiscordSimulator) -> None:
    bot = Bot(discord.Intents.default())
    with pytest.raises(discord.LoginFailure):
        await bot.start("wrong")
    await bot.close()


async def test_an_intent_that_is_switched_off_ends_the_client(simulator: DiscordSimulator) -> None:
    simulator.settings.has_message_content_intent = False
    intents = discord.Intents.default()
    intents.message_content = True
    bot = Bot(intents)
    with pytest.raises(discord.PrivilegedIntentsRequired):
        await bot.start(TOKEN)
    await bot.close()


async def test_a_token_that_is_changed_meanwhile_ends_the_client(simulator: DiscordSimulator) -> None:
    intents = discord.Intents.default()
    bot = Bot(intents)
    task = spawn(bot.start(TOKEN), name="test bot")
    await until(lambda: bot.of("ready"))
    simulator.world.token = "another"
    simulator.misbehave("reconnect")
    try:
        await until(task.done)
        error = task.exception()
        assert isinstance(error, discord.ConnectionClosed)
        assert error.code == 4004
    finally:
        await bot.close()
        await cancel(task)


async def test_two_clients_hear_the_same(simulator: DiscordSimulator) -> None:
    async with connected() as first, connected() as second:
        await simulator.say("alice", GENERAL, "to both")
        await until(lambda: contents(first) == contents(second) == ["to both"])


async def test_members_are_fetched_over_the_gateway(simulator: DiscordSimulator) -> None:
    intents = discord.Intents.default()
    intents.members = True
    async with connected(intents) as bot:
        guild = bot.get_guild(3001)
        assert guild is not None
        assert [member.name for member in await guild.query_members("al")] == ["alice"]
        assert {member.name for member in guild.members} == {"threadhand", "alice", "bob"}


async def test_everything_a_person_does_is_heard(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        message_id = await simulator.say("alice", GENERAL, "hello @bob and @threadhand")
        await until(lambda: contents(bot))
        await simulator.edit("alice", GENERAL, message_id, "hello again")
        await until(lambda: bot.of("message_edit"))
        await simulator.react("bob", GENERAL, message_id, "❌")
        await simulator.react("bob", GENERAL, message_id, "❌", is_removed=True)
        await until(lambda: bot.of("raw_reaction_remove"))
        added = bot.of("raw_reaction_add")[0]
        assert isinstance(added, discord.RawReactionActionEvent)
        assert (added.emoji.name, added.member.name if added.member else "") == ("❌", "bob")
        await simulator.delete("alice", GENERAL, message_id)
        await until(lambda: bot.of("message_delete"))
        await simulator.say("bob", "5002", "in private")
        await until(lambda: len(contents(bot)) == 2)
        direct = bot.of("message")[1]
        assert isinstance(direct, discord.Message)
        assert isinstance(direct.channel, discord.DMChannel)
        await direct.channel.send("answer")
        assert len(simulator.view().channels[3].messages) == 2
