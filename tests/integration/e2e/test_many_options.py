"""A question with more options than one menu holds: people see them all, and choose by click or in words."""

import json
from typing import cast

import pytest

from bots.demo.thread_reader import text_of
from simulator.view import Button, Select
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.test_approvals import MOSTLY_DISCORD, MOSTLY_SLACK

SHOWN_MAX = {"slack": 500, "discord": 425}
"""How many of 500 fit in menus. Discord allows 40 components in a message."""
SCENARIO = """
conversations:
  - name: ask
    when: {user: {contains: "Which customer"}}
    steps:
      - calls: [{name: ask, arguments: {text: "Which one?", options: OPTIONS}}]
      - text: "That one, then."
"""


"""Two options of more than 300 characters that differ only at the end."""


def customers(count: int) -> list[str]:
    return [f"Customer {number:03}" for number in range(1, count + 1)]


def scenario(count: int) -> str:
    return offering(customers(count))


def offering(options: list[str]) -> str:
    return SCENARIO.replace("OPTIONS", json.dumps(options))


def menus(stage: Stage) -> list[tuple[str, Select]]:
    """The menus of the question, each with its message."""
    return [
        (one.message_id, element) for one in stage.ours() for element in one.elements if isinstance(element, Select)
    ]


def offered(stage: Stage) -> dict[str, tuple[str, str, str]]:
    """The options as their controls show them, each with its message, control and value."""
    found = dict[str, tuple[str, str, str]]()
    for one in stage.ours():
        for element in one.elements:
            if isinstance(element, Select):
                choices = {option.label: option.value for option in element.options}
            elif isinstance(element, Button) and "ask:" in element.control_id:
                choices = {element.label: ""}
            else:
                continue
            for label, value in choices.items():
                assert label not in found
                found[label] = (one.message_id, element.control_id, value)
    found.pop("Write an answer", None)
    return found


async def choose(stage: Stage, label: str) -> None:
    message_id, control_id, value = offered(stage)[label]
    await stage.platform.press(PERSON, stage.channel_id, message_id, control_id, value=value)


async def begin(stage: Stage) -> None:
    stage.program.start()
    await stage.connected()
    await stage.say("Which customer do I mean?")
    await stage.until(lambda: offered(stage), "it asks")
    await stage.settled(1)


async def asked(stage: Stage) -> list[str]:
    """Returns the options that the menus show."""
    await begin(stage)
    return [option.label for _, menu in menus(stage) for option in menu.options]


async def heard(stage: Stage) -> str:
    """Returns what the model was told that the answer is."""
    await stage.until(lambda: stage.shows("That one, then."), "it goes on")
    await stage.settled(2)
    assert offered(stage) == {}
    messages = cast(list[dict[str, str]], stage.last_request()["messages"])
    answers = [one["content"] for one in messages if "<message" in str(one["content"])]
    return answers[-1].splitlines()[1]  # the state of the work follows if the minute has changed


@pytest.mark.parametrize("way", ["click", "words"])
@MOSTLY_SLACK
async def test_500_options_are_shown_whole(platform: PlatformName, way: str) -> None:
    async with staged(platform, scenario(500)) as stage:
        shown = await asked(stage)
        assert shown == customers(SHOWN_MAX[platform])
        files = [file.name for one in stage.ours() for file in one.files]
        assert files == ["options.txt"]
        left = 500 - len(shown)
        assert any(f"{left} more options do not fit" in text_of(one) for one in stage.ours()) == (left > 0)
        if way == "click":
            chosen = shown[-1]
            message_id, menu = menus(stage)[-1]
            await stage.platform.press(
                PERSON, stage.channel_id, message_id, menu.control_id, value=menu.options[-1].value
            )
        else:
            chosen = "Customer 500"
            await stage.say(chosen)
        assert await heard(stage) == chosen


@pytest.mark.parametrize(("count", "way"), [(1, "click"), (5, "click"), (26, "click"), (26, "words")])
@MOSTLY_DISCORD
async def test_each_option_is_shown_and_the_chosen_one_is_told(platform: PlatformName, count: int, way: str) -> None:
    async with staged(platform, scenario(count)) as stage:
        await begin(stage)
        assert list(offered(stage)) == customers(count)
        assert len(menus(stage)) == (count > 5) + (count > 25 and platform == "discord")
        last = customers(count)[-1]
        await (choose(stage, last) if way == "click" else stage.say(f" {last.upper()} "))
        assert await heard(stage) == last
        (question,) = [one for one in stage.ours() if "Which one?" in text_of(one)]
        assert "answered" in text_of(question)
