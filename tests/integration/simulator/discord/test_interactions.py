"""Interactions with the real client library: commands, buttons, selects, forms, and their deadlines."""

import asyncio
from typing import Any

import discord
import pytest
from discord import app_commands

from simulator.discord import DiscordSimulator
from simulator.view import SentFile
from tests.integration.simulator.discord.bot import Bot, Rest, ask, connected, texts
from tests.support.narrow import require_type
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("library")
GENERAL = "4001"


async def register(bot: Bot) -> None:
    """`/agent run prompt file`, which defers and follows up with what it was given."""
    tree = app_commands.CommandTree(bot)
    agent = app_commands.Group(name="agent", description="The agent")

    @agent.command(name="run", description="Runs it")
    async def run(interaction: discord.Interaction, prompt: str, file: discord.Attachment | None = None) -> None:
        await interaction.response.defer()
        content = b"" if file is None else await file.read()
        await interaction.followup.send(f"{prompt}: {content.decode()}")
        await interaction.edit_original_response(content="edited")
        await interaction.followup.send("for you", ephemeral=True)

    tree.add_command(agent)
    await tree.sync()


async def test_a_command_with_a_file_is_deferred_and_followed_up(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        await register(bot)
        file = SentFile(name="data.csv", content=b"1,2", mime_type="text/csv")
        changes = simulator.changes()
        await simulator.command("alice", GENERAL, "agent run", {"prompt": "sum"}, files={"file": file})
        seen: set[str] = set()
        async for _ in changes:
            seen.update(texts(simulator))
            if "for you" in seen:
                break
        await changes.aclose()
        assert texts(simulator) == ["edited", "for you"]
        answer, ephemeral = simulator.view().channels[0].messages
        assert (answer.author, answer.edits) == ("threadhand", 1)
        assert ephemeral.visible_to == "alice"


@pytest.mark.parametrize(
    ("choices", "is_taken"),
    [
        ([app_commands.Choice(name="Red: a colour", value="red")], True),
        ([], True),
        ([app_commands.Choice(name="n" * 101, value="long")], False),
        ([app_commands.Choice(name="long", value="v" * 101)], False),
        ([app_commands.Choice(name=f"c{n}", value="x") for n in range(26)], False),
    ],
)
async def test_an_option_suggests_at_most_25_short_values(
    simulator: DiscordSimulator, choices: list[app_commands.Choice[str]], is_taken: bool
) -> None:
    simulator.settings.answer_seconds = 3.0 if is_taken else 0.5
    typed: list[str] = []

    async def suggest(interaction: discord.Interaction, current: str) -> list[app_commands.Choice[str]]:
        typed.append(current)
        return choices

    async with connected() as bot:
        tree = app_commands.CommandTree(bot)

        @tree.command(name="paint", description="Paints it")
        @app_commands.autocomplete(colour=suggest)
        async def paint(interaction: discord.Interaction, colour: str, size: str = "") -> None:
            await interaction.response.send_message(colour)

        await tree.sync()
        place = ("alice", GENERAL, "paint")
        if is_taken:
            found = await simulator.suggest(*place, {"colour": "re"}, "colour")
            assert [(one.value, one.label) for one in found] == [(one.value, one.name) for one in choices]
        else:
            with pytest.raises(TimeoutError):
                await simulator.suggest(*place, {"colour": "re"}, "colour")
        assert typed == ["re"]
        with pytest.raises(ValueError, match="suggests nothing"):
            await simulator.suggest(*place, {}, "size")


async def test_calls_that_the_box_would_not_send(simulator: DiscordSimulator) -> None:
    async with connected() as bot:
        await register(bot)
        for name, options in (
            ("nothing", {}),
            ("agent", {}),
            ("agent run", {}),
            ("agent run", {"prompt": "x", "other": "y"}),
        ):
            with pytest.raises(ValueError, match=r"\w"):
                await simulator.command("alice", GENERAL, name, options)
        with pytest.raises(ValueError, match="no person"):
            await simulator.command("nobody", GENERAL, "agent run", {"prompt": "x"})


@pytest.mark.parametrize("comes_expired", [False, True])
async def test_an_answer_that_comes_late_is_refused_and_the_person_is_told(
    simulator: DiscordSimulator, comes_expired: bool
) -> None:
    simulator.settings.answer_seconds = 0.3 if comes_expired else 0.05
    late = asyncio.Event()
    codes: list[int] = []
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            if not comes_expired:
                await late.wait()
            try:
                await interaction.response.defer()
            except discord.NotFound as error:
                codes.append(error.code)

        bot.answer = answer
        message_id = await ask(bot)
        if comes_expired:
            simulator.misbehave("expire_trigger")
        with pytest.raises(TimeoutError):
            await simulator.press("alice", GENERAL, message_id, "go")
        late.set()
        await until(lambda: codes)
        assert codes == [10062]


async def test_a_second_answer_and_an_expired_token_are_refused(simulator: DiscordSimulator) -> None:
    codes: list[int] = []
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            await interaction.response.edit_message(content="pressed", view=None)
            second = discord.InteractionResponse(interaction)
            try:
                await second.send_message("again")
            except discord.HTTPException as error:
                codes.append(error.code)
            simulator.settings.token_seconds = 0
            try:
                await interaction.followup.send("late")
            except discord.HTTPException as error:
                codes.append(error.code)

        bot.answer = answer
        message_id = await ask(bot)
        await simulator.press("alice", GENERAL, message_id, "go")
        await until(lambda: len(codes) == 2)
        assert codes == [40060, 50027]
        assert texts(simulator) == ["pressed"]
        with pytest.raises(ValueError, match="gone"):
            await simulator.press("alice", GENERAL, message_id, "go")


async def test_answers_that_make_no_sense_are_refused(simulator: DiscordSimulator, rest: Rest) -> None:
    answers: list[tuple[int, Any]] = []
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            path = f"/interactions/{interaction.id}/{interaction.token}/callback"
            hook = f"/webhooks/1001/{interaction.token}"
            bodies = (
                {"type": 1},
                {"type": 8},
                {"type": 4, "data": {}},
                {"type": 4, "data": {"content": "x" * 2001}},
                {"type": 9, "data": {"title": "x"}},
            )
            answers.extend([await rest("POST", path, body, token=None) for body in bodies])
            answers.append(await rest("POST", hook, {"content": "early"}, token=None))
            answers.append(await rest("POST", path.replace(str(interaction.id), "1"), {}))
            answers.append(await rest("POST", path, {"type": 6}, token=None))
            answers.append(await rest("GET", f"{hook}/messages/@original", token=None))
            answers.append(await rest("GET", f"{hook}/messages/1", token=None))

        bot.answer = answer
        message_id = await ask(bot)
        await simulator.press("alice", GENERAL, message_id, "go")
        await until(lambda: len(answers) == 10)
        codes = [body.get("code") if body else None for _, body in answers]
        assert codes[:7] == [50035, 50035, 50006, 50035, 50035, 10015, 10062]
        assert "content" in answers[3][1]["errors"]["data"]
        assert answers[7] == (204, None)
        assert answers[8][1]["content"] == "press"
        assert codes[9] == 10008


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
        message_id = await ask(bot)
        await simulator.press("alice", GENERAL, message_id, "go")
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
        opened_by = require_type(told.interaction["triggering_interaction_metadata"], dict)
        assert (opened_by["type"], opened_by["interacted_message_id"]) == (3, message_id)


async def test_selects_of_values_and_of_people(simulator: DiscordSimulator) -> None:
    heard: list[object] = []
    async with connected() as bot:

        async def answer(interaction: discord.Interaction) -> None:
            assert interaction.data is not None
            heard.append(dict(interaction.data)["values"])
            await interaction.response.defer()

        bot.answer = answer
        select = discord.ui.Select(custom_id="s", max_values=2)
        for value in "abc":
            select.add_option(label=value.upper(), value=value)
        people = discord.ui.UserSelect(custom_id="u")
        message_id = await ask(bot, select, people)
        await simulator.press("alice", GENERAL, message_id, "s", value="a,c")
        await simulator.press("alice", GENERAL, message_id, "u", value="2002")
        assert heard == [["a", "c"], ["2002"]]
        for value in ("", "d"):
            with pytest.raises(ValueError, match="option"):
                await simulator.press("alice", GENERAL, message_id, "s", value=value)
