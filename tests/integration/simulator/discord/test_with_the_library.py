"""The real client library against the simulator: what it does and reads must work without an exception."""

import io

import discord
import pytest

from simulator.discord import DiscordSimulator
from simulator.view import Button, Markdown, SentFile
from tests.integration.simulator.discord.bot import connected, until

pytestmark = pytest.mark.usefixtures("library")


async def test_a_mention_reaches_the_client_and_its_answer_is_seen(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        channel_id = simulator.view().channels[0].channel_id
        file = SentFile(name="numbers.csv", content=b"a,b\n1,2\n", mime_type="text/csv")
        await simulator.say("alice", channel_id, "hello @threadhand", files=[file])
        await until(lambda: bot.of("message"))
        (message,) = bot.of("message")
        assert isinstance(message, discord.Message)
        assert bot.user in message.mentions
        assert message.content == f"hello <@{bot.user.id}>"
        assert await message.attachments[0].read() == b"a,b\n1,2\n"
        answer = await message.reply("hi", file=discord.File(io.BytesIO(b"x"), "x.txt"))
        await answer.edit(content="hi there")
        await message.add_reaction("👀")
        seen = simulator.view().channels[0].messages
        assert [item.author for item in seen] == ["alice", "threadhand"]
        assert seen[0].reactions[0].people == ("threadhand",)
        assert seen[1].elements == (Markdown(text="hi there", flavour="discord"),)
        assert seen[1].edits == 1
        assert seen[1].files[0].name == "x.txt"
    assert simulator.view().is_bot_connected is False


async def test_a_thread_from_a_message_has_the_messages_id(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        channel_id = simulator.view().channels[0].channel_id
        message_id = await simulator.say("alice", channel_id, "@threadhand do it")
        await until(lambda: bot.of("message"))
        message = bot.of("message")[0]
        assert isinstance(message, discord.Message)
        thread = await message.create_thread(name="do it")
        assert str(thread.id) == message_id
        await thread.send("working")
        await simulator.say("bob", channel_id, "me too", thread_id=message_id)
        await until(lambda: [m for m in bot.of("message") if m.content == "me too"])
        (seen,) = simulator.view().channels[0].threads
        assert seen.title == "do it"
        assert [item.author for item in seen.messages] == ["threadhand", "bob"]
        assert [m.content async for m in thread.history(oldest_first=True)][-2:] == ["working", "me too"]


class Layout(discord.ui.LayoutView):
    def __init__(self) -> None:
        super().__init__(timeout=None)
        row = discord.ui.ActionRow()
        row.add_item(discord.ui.Button(label="Stop", custom_id="stop"))
        self.add_item(discord.ui.Container(discord.ui.TextDisplay("# Working"), row))


async def test_a_layout_is_seen_and_its_button_answered(simulator: DiscordSimulator) -> None:
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            await interaction.response.defer()
            await interaction.followup.send("stopped", ephemeral=True)

        bot.answer = answer
        channel = bot.get_channel(int(simulator.view().channels[0].channel_id))
        assert isinstance(channel, discord.TextChannel)
        message = await channel.send(view=Layout())
        seen = simulator.view().channels[0].messages[0]
        assert Button(control_id="stop", label="Stop") in seen.elements
        await simulator.press("bob", str(channel.id), str(message.id), "stop")
        await until(lambda: len(simulator.view().channels[0].messages) == 2)
        assert simulator.view().channels[0].messages[1].visible_to == "bob"
