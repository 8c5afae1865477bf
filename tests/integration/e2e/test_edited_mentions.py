"""Edits of messages that mention the agent: Slack tells each of them as a mention, too."""

from bots.demo.thread_reader import messages_of
from tests.chaos.harness import PERSON, Stage, staged

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
        text
        for one in messages_of(stage.view(), thread_id)
        if one.is_bot and "Done" not in (text := str(one.elements))
    ]


async def test_an_edit_that_adds_a_mention_is_answered_and_one_that_keeps_it_is_not() -> None:
    async with staged("slack", HELLO) as stage:
        stage.program.start()
        await stage.connected()
        slack, channel = stage.platform, stage.view().channels[0].channel_id
        ts = await slack.say(PERSON, channel, "Hello")
        await slack.edit(PERSON, channel, ts, "@threadhand Hello")
        await stage.until(lambda: "Hi there." in str(answers(stage, ts)), "the edit is answered")
        await slack.edit(PERSON, channel, ts, "@threadhand Hello!")
        other = await slack.say(PERSON, channel, "@threadhand Bye")
        await stage.until(lambda: "Until later." in str(answers(stage, other)), "it goes on")
        assert str(answers(stage, ts)).count("Hi there.") == 1
        runs = stage.database_reader("SELECT status FROM run", ())
        assert [status for (status,) in runs] == ["completed"] * 2, stage.report()
