"""Who is let in and who is refused, and what they see: the real program against both simulated platforms."""

import pytest

from bots.demo.thread_reader import text_of
from bots.inbound.access import NOT_ALLOWED
from simulator.slack.server import SlackSimulator
from simulator.view import SeenMessage
from tests.chaos.harness import PERSON, PlatformName, Stage, staged

SCENARIO = """
conversations:
  - name: asks
    when: {user: {contains: "Choose"}}
    steps:
      - calls: [{name: ask, arguments: {text: "Which one?", options: ["Red", "Blue"]}}]
      - text: "So be it."
"""
BOTH = pytest.mark.parametrize("platform", ["slack", "discord"])
ROLES: dict[PlatformName, str] = {"slack": "S0ROLE", "discord": "7001"}


def id_of(stage: Stage, person: str) -> str:
    platform = stage.platform
    if isinstance(platform, SlackSimulator):
        return platform.member(person).user_id
    return platform.world.people[person].user_id


def give_role(stage: Stage, *people: str) -> None:
    """The role is theirs alone from now on."""
    platform = stage.platform
    if isinstance(platform, SlackSimulator):
        members = [platform.member(person).user_id for person in people]
        platform.workspace.user_groups[ROLES["slack"]] = members
        return
    platform.world.home.roles[ROLES["discord"]] = "helpers"
    for name, user in platform.world.people.items():
        user.roles = [ROLES["discord"]] if name in people else []


def told(stage: Stage, sentence: str) -> list[SeenMessage]:
    """What the agent said so, anywhere."""
    found: list[SeenMessage] = []
    for channel in stage.view().channels:
        threads = [one for thread in channel.threads for one in thread.messages]
        found += [*channel.messages, *threads]
    unique = {one.message_id: one for one in found if one.is_bot and sentence in text_of(one)}
    return list(unique.values())


async def up(stage: Stage) -> None:
    stage.program.start()
    await stage.connected()


@BOTH
async def test_somebody_who_lost_the_role_since_the_question_may_not_answer_it(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO, allowed_workspaces="", allowed_roles=ROLES[platform]) as stage:
        give_role(stage, PERSON)
        await up(stage)
        await stage.say("Choose, please.")
        await stage.until(lambda: stage.button("Red"), "it asks")
        give_role(stage, "bob")
        await stage.press("Red")
        await stage.until(lambda: told(stage, NOT_ALLOWED), "she is told")
        assert stage.rows("SELECT state FROM pending_ask") == [("open",)]
        assert [one.visible_to is not None for one in told(stage, NOT_ALLOWED)] == [True]
        await stage.press("Blue", "bob")
        await stage.until(lambda: stage.shows("So be it."), "it goes on")
        (answer,) = stage.rows("SELECT answer FROM pending_ask WHERE state = 'answered'")
        assert answer == ("Blue",)
