"""Interactions with the real client library: commands, buttons, selects, forms, and their deadlines."""

import asyncio
from typing import Any

import discord
import pytest
from discord import app_commands

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Rest, ask, connected, texts
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("library")
GENERAL = "4001"


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
