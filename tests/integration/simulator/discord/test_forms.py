"""Forms and selects with the real client library."""

import discord
import pytest

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import connected

pytestmark = pytest.mark.usefixtures("library")
GENERAL = "4001"


def texts(simulator: DiscordSimulator) -> list[str]:
    return [
        "".join(getattr(element, "text", "") for element in message.elements)
        for message in simulator.view().channels[0].messages
    ]


class Details(discord.ui.Modal, title="Details"):
    name = discord.ui.Label(text="Name", component=discord.ui.TextInput(custom_id="name"))
    colour = discord.ui.Label(
        text="Colour",
        component=discord.ui.RadioGroup(
            custom_id="colour",
            options=[
                discord.RadioGroupOption(label="Red", value="r"),
                discord.RadioGroupOption(label="Blue", value="b"),
            ],
        ),
    )
    sure = discord.ui.Label(text="Sure", component=discord.ui.Checkbox(custom_id="sure"))

    async def on_submit(self, interaction: discord.Interaction) -> None:
        name, colour, sure = self.name.component, self.colour.component, self.sure.component
        assert isinstance(name, discord.ui.TextInput)
        assert isinstance(colour, discord.ui.RadioGroup)
        assert isinstance(sure, discord.ui.Checkbox)
        await interaction.response.send_message(f"{name.value} {colour.value} {sure.value}")


async def test_a_form_is_opened_filled_in_and_sent(simulator: DiscordSimulator) -> None:
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            if interaction.type is discord.InteractionType.component:
                await interaction.response.send_modal(Details())

        bot.answer = answer
        channel = bot.get_channel(int(GENERAL))
        assert isinstance(channel, discord.TextChannel)
        view = discord.ui.View().add_item(discord.ui.Button(label="Go", custom_id="go"))
        message = await channel.send("press", view=view)
        await simulator.press("alice", GENERAL, str(message.id), "go")
        (form,) = simulator.view().forms
        assert (form.person, form.title) == ("alice", "Details")
        assert [(field.field_id, field.label) for field in form.fields] == [
            ("name", "Name"),
            ("colour", "Colour"),
            ("sure", "Sure"),
        ]
        for values in ({}, {"name": "x", "colour": "green"}, {"name": "x", "other": "y"}):
            with pytest.raises(ValueError, match="field"):
                await simulator.submit("alice", form.form_id, values)
        with pytest.raises(ValueError, match="gone"):
            await simulator.submit("bob", form.form_id, {})
        values = {"name": "Ann", "colour": "b", "sure": "true"}
        await simulator.submit("alice", form.form_id, values)
        assert simulator.view().forms == ()
        assert texts(simulator) == ["press", "Ann b True"]
        *_, told = simulator.world.channels[GENERAL].messages.values()
        assert told.interaction is not None
        opened_by = told.interaction["triggering_interaction_metadata"]
        assert isinstance(opened_by, dict)
        assert (opened_by["type"], opened_by["interacted_message_id"]) == (3, str(message.id))


async def test_selects_of_values_and_of_people(simulator: DiscordSimulator) -> None:
    heard: list[object] = []
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            assert interaction.data is not None
            heard.append(dict(interaction.data)["values"])
            await interaction.response.defer()

        bot.answer = answer
        channel = bot.get_channel(int(GENERAL))
        assert isinstance(channel, discord.TextChannel)
        select = discord.ui.Select(custom_id="s", max_values=2)
        for value in "abc":
            select.add_option(label=value.upper(), value=value)
        people = discord.ui.UserSelect(custom_id="u")
        message = await channel.send("choose", view=discord.ui.View().add_item(select).add_item(people))
        await simulator.press("alice", GENERAL, str(message.id), "s", value="a,c")
        await simulator.press("alice", GENERAL, str(message.id), "u", value="2002")
        assert heard == [["a", "c"], ["2002"]]
        for value in ("", "d"):
            with pytest.raises(ValueError, match="option"):
                await simulator.press("alice", GENERAL, str(message.id), "s", value=value)
