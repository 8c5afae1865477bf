"""Slack gives up what nobody takes for some minutes: the program reads it when it is back, and answers it once."""

from dataclasses import replace

from bots.demo.thread_reader import text_of
from simulator.slack.server import SlackSimulator
from tests.chaos.harness import PERSON, Stage, staged
from tests.integration.bots.slack.storing_app import deliver_again

ANSWER = "Hi there."
SCENARIO = f"""
conversations:
  - name: any
    steps:
      - text: "{ANSWER}"
      - text: "{ANSWER}"
"""


async def test_what_was_said_in_a_long_outage_is_answered_once() -> None:
    async with staged("slack", SCENARIO) as stage:
        slack = stage.platform
        assert isinstance(slack, SlackSimulator)
        private = _direct(slack)
        stage.program.start()
        await stage.connected()
        root = await stage.say("Hello")
        await slack.say(PERSON, private, "Hello, you")
        await stage.until(lambda: len(_marks(stage)) == 2, "both channels are marked")
        await stage.settled(2)
        stage.program.kill()

        slack.outbox.settings = replace(slack.outbox.settings, offline_seconds=0.0)
        await stage.until(lambda: not slack.socket_mode.is_connected(), "nobody listens")
        await stage.say("Go on")
        mention = await slack.say("bob", stage.channel_id, "@threadhand Me too")
        await slack.say("bob", stage.channel_id, "Nothing for anybody")
        await slack.say(PERSON, private, "Hello again")
        stage.program.start()
        await stage.settled(5)
        await stage.until(lambda: "caught up in workspace" in stage.program.log_of_this_start(), "all was read")
        deliver_again(slack, stage.channel_id, mention)
        await slack.say("bob", stage.channel_id, "And more", thread_id=mention)
        await stage.settled(6)

        assert stage.runs() == ["completed"] * 6
        assert _answers(slack, stage.channel_id, root) == 2
        assert _answers(slack, stage.channel_id, mention) == 2
        assert _answers(slack, stage.channel_id) == 4
        assert _answers(slack, private) == 2
        assert stage.script.problems == []


def _direct(slack: SlackSimulator) -> str:
    workspace = slack.workspace
    person = workspace.names[PERSON]
    return workspace.direct_with(person.user_id, workspace.bot.user_id).channel_id


def _marks(stage: Stage) -> list[tuple[object, ...]]:
    return stage.rows("SELECT scope FROM inbound_cursor WHERE scope NOT LIKE '%:'")


def _answers(slack: SlackSimulator, channel_id: str, thread_id: str = "") -> int:
    """How many answers stand in the channel's threads, or in one of them."""
    return sum(
        text_of(one).startswith(ANSWER)
        for channel in slack.view().channels
        if channel.channel_id == channel_id
        for thread in channel.threads
        if thread_id in ("", thread.thread_id)
        for one in thread.messages
    )
