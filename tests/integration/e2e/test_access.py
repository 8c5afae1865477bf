"""Who is let in and who is refused, and what they see: the real program against both simulated platforms."""

import pytest

from bots.demo.thread_reader import text_of
from bots.inbound.access import NO_EXTERNAL_MEMBERS, NO_GUESTS, NOT_ALLOWED
from simulator.discord.server import DiscordSimulator
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
  - name: talks
    when: {user: {contains: "Talk"}}
    steps:
      - text: "Here I am."
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


@BOTH
async def test_who_has_no_role_is_told_once_and_starts_nothing(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO, allowed_workspaces="", allowed_roles=ROLES[platform]) as stage:
        give_role(stage, "bob")
        await up(stage)
        for _ in range(2):
            await stage.platform.say(PERSON, stage.channel_id, "@threadhand Talk to me.")
            await stage.until(lambda: told(stage, NOT_ALLOWED), "she is told")
        await stage.platform.say("bob", stage.channel_id, "@threadhand Talk to me.")
        await stage.until(lambda: told(stage, "Here I am."), "he is answered")
        assert len(told(stage, NOT_ALLOWED)) == 1
        assert len(stage.runs()) == 1


@pytest.mark.parametrize(
    ("guest", "home_team", "sentence"),
    [("multi", "", NO_GUESTS), ("single", "", NO_GUESTS), ("", "T0ELSEWHERE", NO_EXTERNAL_MEMBERS)],
)
async def test_guests_and_people_of_other_workspaces_are_refused_in_slack(
    guest: str, home_team: str, sentence: str
) -> None:
    async with staged("slack", SCENARIO) as stage:
        assert isinstance(stage.platform, SlackSimulator)
        member = stage.platform.member(PERSON)
        member.guest, member.home_team = guest, home_team
        await up(stage)
        await stage.platform.say(PERSON, stage.channel_id, "@threadhand Talk to me.")
        await stage.until(lambda: told(stage, sentence), "she is told")
        assert [one.visible_to for one in told(stage, sentence)] == [PERSON]
        assert stage.runs() == []


async def test_a_member_of_another_server_is_refused_in_discord() -> None:
    async with staged("discord", SCENARIO, allowed_workspaces="1234") as stage:
        assert isinstance(stage.platform, DiscordSimulator)
        await up(stage)
        await stage.platform.say(PERSON, stage.channel_id, "@threadhand Talk to me.")
        await stage.until(lambda: told(stage, NOT_ALLOWED), "she is told")
        await stage.platform.command(PERSON, stage.channel_id, "agent run", {"prompt": "Talk"})
        await stage.until(lambda: len(told(stage, NOT_ALLOWED)) == 2, "a command is answered too")
        assert stage.runs() == []
