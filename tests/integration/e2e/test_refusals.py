"""What a platform refuses ends neither in silence nor with a tick, and what moderators close stays closed."""

import re
from dataclasses import replace

import pytest

from bots.demo.thread_reader import buttons_of, text_of
from simulator.discord.rules.permissions import SEND_IN_THREADS
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator
from tests.chaos.harness import PERSON, Stage, staged

SCENARIO = """
conversations:
  - name: short
    when: {user: {contains: "Say hello"}}
    steps:
      - text: "Hello to you."
  - name: long
    when: {user: {contains: "Work on it"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "until [ -e go ]; do sleep 0.1; done; rm go"}}]
      - text: "This is the answer."
"""
CROSS = {"discord": ["❌"], "slack": ["x"]}
TICK = {"discord": ["✅"], "slack": ["white_check_mark"]}


async def working(stage: Stage) -> None:
    stage.program.start()
    await stage.connected()
    await stage.say("Work on it.")
    await stage.until(lambda: any("until" in text_of(one) for one in stage.ours()), "it works")


async def released(stage: Stage) -> None:
    """Lets the run's command end."""
    (place,) = (stage.program.folder / "data" / "sandboxes").glob("**/workspace")
    (place / "go").touch()


def signs(stage: Stage) -> list[str]:
    """The reactions on the request, in the channel or the thread."""
    everything = [one for channel in stage.view().channels for one in channel.messages]
    (request,) = [one for one in everything if one.message_id == stage.thread_id]
    return [one.emoji for one in request.reactions]


def beside(stage: Stage, *, is_direct: bool = False) -> list[str]:
    """What the agent has written outside threads, in the channel or to the requester."""
    return [
        text_of(one)
        for channel in stage.view().channels
        for one in channel.messages
        if channel.is_direct == is_direct and one.is_bot
    ]


async def pressed_beside(stage: Stage, label: str) -> None:
    """Presses a button of a message outside the thread."""
    for channel in stage.view().channels:
        for message in channel.messages:
            for button in buttons_of(message):
                if button.label == label:
                    await stage.platform.press(PERSON, channel.channel_id, message.message_id, button.control_id)
                    return
    raise AssertionError(f"no button {label}\n{stage.report()}")


def discord_of(stage: Stage) -> DiscordSimulator:
    assert isinstance(stage.platform, DiscordSimulator)
    return stage.platform


def slack_of(stage: Stage) -> SlackSimulator:
    assert isinstance(stage.platform, SlackSimulator)
    return stage.platform


async def test_a_thread_that_cannot_be_opened_is_told_and_retried() -> None:
    async with staged("discord", SCENARIO) as stage:
        discord_of(stage).settings.threads_max = 0
        stage.program.start()
        await stage.connected()
        await stage.say("Say hello.")
        await stage.settled(1)
        assert (stage.runs(), signs(stage)) == (["stopped"], ["❌"])
        assert not stage.script.requests
        (told,) = beside(stage)
        assert "as many active threads as Discord allows" in told
        discord_of(stage).settings.threads_max = 1000
        await pressed_beside(stage, "Retry")
        await stage.settled(2)
        (thread,) = stage.view().channels[0].threads
        assert thread.title == "Say hello."
        assert any("Hello to you." in text_of(one) for one in thread.messages)


@pytest.mark.parametrize("way", ["locked", "closed", "deleted", "purged"])
async def test_what_moderators_do_stops_the_run_and_reopens_nothing(way: str) -> None:
    async with staged("discord", SCENARIO) as stage:
        await working(stage)
        discord = discord_of(stage)
        match way:
            case "locked" | "closed":
                discord.lock_thread(stage.thread_id, is_archived=way == "closed")
            case "deleted":
                discord.delete_channel(stage.thread_id)
            case _:
                other = await discord.say(PERSON, stage.channel_id, "spam")
                discord.delete_messages(stage.channel_id, [stage.thread_id, other])
        await stage.settled(1)
        assert stage.runs() == ["stopped"]
        if way != "purged":
            assert signs(stage) == ["❌"]
        threads = stage.view().channels[0].threads
        assert [one.thread_id for one in threads] == ([] if way == "deleted" else [stage.thread_id])
        if way in ("locked", "closed"):
            thread = discord.world.channels[stage.thread_id]
            assert (thread.is_locked, thread.is_archived) == (True, way == "closed")


async def test_an_answer_without_permission_is_kept_for_retry() -> None:
    async with staged("discord", SCENARIO) as stage:
        await working(stage)
        discord = discord_of(stage)
        discord.allow(stage.channel_id, denied=SEND_IN_THREADS)
        await released(stage)
        await stage.settled(1)
        assert signs(stage) == ["❌"]
        (told,) = beside(stage)
        assert re.search("Send Messages in Threads.*The answer is kept: press Retry", told)
        discord.allow(stage.channel_id)
        await pressed_beside(stage, "Retry")
        await stage.until(lambda: stage.shows("This is the answer."), "the answer is posted")
        await stage.until(lambda: signs(stage) == ["✅"], "it is done")
        assert len(stage.script.requests) == 2


def removed(stage: Stage) -> None:
    slack = slack_of(stage)
    slack.workspace.channels[stage.channel_id].members.pop(slack.workspace.bot.user_id)


def archived(stage: Stage) -> None:
    slack_of(stage).workspace.channels[stage.channel_id].is_archived = True


@pytest.mark.parametrize(("close", "reason"), [(archived, "archived"), (removed, "not a member")])
async def test_a_channel_that_closes_meanwhile_is_told_in_private(close, reason: str) -> None:
    async with staged("slack", SCENARIO) as stage:
        await working(stage)
        channel = slack_of(stage).workspace.channels[stage.channel_id]
        close(stage)
        await released(stage)
        await stage.settled(1)
        assert signs(stage) != TICK["slack"]
        (told,) = beside(stage, is_direct=True)
        assert reason in told
        assert "The answer is kept: press Retry" in told
        channel.is_archived = False
        channel.members[slack_of(stage).workspace.bot.user_id] = None
        await pressed_beside(stage, "Retry")
        await stage.until(lambda: stage.shows("This is the answer."), "the answer is posted")
        await stage.until(lambda: signs(stage) == TICK["slack"], "it is done")
        assert len(stage.script.requests) == 2


async def test_a_status_that_may_no_longer_be_edited_leaves_no_working_behind() -> None:
    async with staged("slack", SCENARIO) as stage:
        await working(stage)
        slack_of(stage).workspace.settings = replace(slack_of(stage).settings, edit_seconds=0.0)
        await released(stage)
        await stage.settled(1)
        assert signs(stage) == TICK["slack"]
        assert stage.shows("This is the answer.")
        assert "Done" in text_of(stage.ours()[-1])
        assert (stage.button("Stop"), len(stage.ours())) == (None, 2)  # the old status is deleted
