"""Edits of messages that mention the agent: Slack tells each of them as a mention, too."""

from bots.demo.thread_reader import messages_of
from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.integration.e2e.staging import BOTH, run_staged

HELLO = """
conversations:
  - name: hello
    when: {user: {contains: "Hello"}}
    steps:
      - text: "Hi there."
  - name: bye
    when: {user: {contains: "Bye"}}
    steps:
      - text: "Until later."
"""


def answers(stage: Stage, thread_id: str) -> list[str]:
    return [
        text for one in messages_of(stage.view(), thread_id) if one.is_bot and "Done" not in (text := str(one.elements))
    ]


@BOTH
async def test_an_edit_that_makes_a_request_is_answered_and_one_of_a_request_is_not(platform: PlatformName) -> None:
    async with run_staged(platform, HELLO) as stage:
        chat, channel = stage.platform, stage.channel_id
        first = await chat.say(PERSON, channel, "Hello")
        await chat.edit(PERSON, channel, first, "@threadhand Hello")
        await stage.until(lambda: "Hi there." in str(answers(stage, first)), "the edit is answered")
        await chat.edit(PERSON, channel, first, "@threadhand Hello!")
        other = await chat.say(PERSON, channel, "@threadhand")
        await stage.until(lambda: stage.shows("Tell me what you need"), "a mere mention is greeted")
        await chat.edit(PERSON, channel, other, "@threadhand Bye")
        await stage.until(lambda: "Until later." in str(answers(stage, other)), "it goes on")
        assert str(answers(stage, first)).count("Hi there.") == 1
        runs = stage.rows("SELECT status FROM run")
        assert [status for (status,) in runs] == ["completed"] * 2, stage.report()
