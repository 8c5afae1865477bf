"""A question with more options than one menu holds: people see them all, and choose by click or in words."""

import json
from typing import cast

import pytest

from bots.demo.thread_reader import text_of
from simulator.view import Select
from tests.chaos.harness import PERSON, PlatformName, Stage, staged
from tests.integration.e2e.test_approvals import MOSTLY_SLACK

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


def customers(count: int) -> list[str]:
    return [f"Customer {number:03}" for number in range(1, count + 1)]


def scenario(count: int) -> str:
    return SCENARIO.replace("OPTIONS", json.dumps(customers(count)))


def menus(stage: Stage) -> list[tuple[str, Select]]:
    """The menus of the question, each with its message."""
    return [
        (one.message_id, element)
        for one in stage.ours()
        for element in one.elements
        if isinstance(element, Select)
    ]


async def asked(stage: Stage) -> list[str]:
    """Returns the options that the menus show."""
    stage.program.start()
    await stage.connected()
    await stage.say("Which customer do I mean?")
    await stage.until(lambda: menus(stage), "it asks")
    await stage.settled(1)
    return [option.label for _, menu in menus(stage) for option in menu.options]


async def heard(stage: Stage) -> str:
    """Returns what the model was told that the answer is."""
    await stage.until(lambda: stage.shows("That one, then."), "it goes on")
    await stage.settled(2)
    assert menus(stage) == []
    messages = cast(list[dict[str, str]], stage.last_request()["messages"])
    answers = [one["content"] for one in messages if "<message" in str(one["content"])]
    return answers[-1].splitlines()[1]


@pytest.mark.parametrize("way", ["click", pytest.param("words", marks=pytest.mark.slow)])
@MOSTLY_SLACK
async def test_the_last_of_101_options_is_chosen(platform: PlatformName, way: str) -> None:
    async with staged(platform, scenario(101)) as stage:
        assert await asked(stage) == customers(101)
        assert len(menus(stage)) > 1
        if way == "click":
            message_id, menu = menus(stage)[-1]
            (last,) = [one for one in menu.options if one.label == "Customer 101"]
            await stage.platform.press(
                PERSON, stage.channel_id, message_id, menu.control_id, value=last.value
            )
        else:
            await stage.say("customer 101")
        assert await heard(stage) == "Customer 101"
        assert stage.rows("SELECT answer FROM pending_ask") == [("Customer 101",)]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["click", "words"])
@MOSTLY_SLACK
async def test_500_options_are_shown_whole(platform: PlatformName, way: str) -> None:
    async with staged(platform, scenario(500)) as stage:
        shown = await asked(stage)
        assert shown == customers(SHOWN_MAX[platform])
        files = [file.name for one in stage.ours() for file in one.files]
        assert files == ["options.txt"]
        left = 500 - len(shown)
        assert any(f"{left} more options do not fit" in text_of(one) for one in stage.ours()) == (
            left > 0
        )
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
