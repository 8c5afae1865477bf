"""What a platform refuses ends neither in silence nor with a tick."""

import re

from bots.demo.thread_reader import buttons_of, text_of
from simulator.discord.rules.permissions import SEND_IN_THREADS
from tests.chaos.harness import PERSON, Stage, staged
from tests.integration.e2e.staging import discord_of

SCENARIO = """
conversations:
  - name: long
    when: {user: {contains: "Work on it"}}
    steps:
      - calls: [{name: execute_command, arguments: {command: "until [ -e go ]; do sleep 0.1; done; rm go"}}]
      - text: "This is the answer."
"""


def signs(stage: Stage) -> list[str]:
    """The reactions on the request, in the channel or the thread."""
    everything = [one for channel in stage.view().channels for one in channel.messages]
    (request,) = [one for one in everything if one.message_id == stage.thread_id]
    return [one.emoji for one in request.reactions]


def beside(stage: Stage) -> list[str]:
    """What the agent has written in the channel, outside threads."""
    return [
        text_of(one)
        for channel in stage.view().channels
        for one in channel.messages
        if not channel.is_direct and one.is_bot
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


async def test_an_answer_without_permission_is_kept_for_retry() -> None:
    async with staged("discord", SCENARIO) as stage:
        stage.program.start()
        await stage.connected()
        await stage.say("Work on it.")
        await stage.until(lambda: any("until" in text_of(one) for one in stage.ours()), "it works")
        discord = discord_of(stage)
        discord.allow(stage.channel_id, denied=SEND_IN_THREADS)
        (place,) = (stage.program.folder / "data" / "sandboxes").glob("**/workspace")
        (place / "go").touch()
        await stage.settled(1)
        assert signs(stage) == ["❌"]
        (told,) = beside(stage)
        assert re.search("Send Messages in Threads.*The answer is kept: press Retry", told)
        discord.allow(stage.channel_id)
        await pressed_beside(stage, "Retry")
        await stage.until(lambda: stage.shows("This is the answer."), "the answer is posted")
        await stage.until(lambda: signs(stage) == ["✅"], "it is done")
        assert len(stage.script.requests) == 2
