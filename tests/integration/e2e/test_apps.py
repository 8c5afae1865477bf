"""Apps that the operator lists start runs by mentioning the agent, and two agents cannot talk for ever."""

from bots.demo.thread_reader import text_of
from simulator.slack import SlackSimulator
from simulator.view import SeenMessage
from tests.chaos.harness import PlatformName, Stage, staged
from tests.integration.e2e.staging import BOTH

SCENARIO = """
conversations:
  - name: other
    when: {user: {contains: "what do you think"}}
    steps:
      - {text: "I agree with you.", optional: true}
      - {text: "I agree again.", optional: true}
      - {text: "I agree once more.", optional: true}
  - name: person
    when: {user: {contains: "sum it up"}}
    steps: [{text: "They agree."}]
"""
OTHER = "Other agent"


async def app_says(stage: Stage, text: str, *, name: str = OTHER) -> str:
    """Another app mentions the agent. In Slack it is an app with a bot user, and as `Alerts` a workflow."""
    words, thread = f"@{stage.view().bot_name} {text}", stage.thread_id or None
    if isinstance(stage.platform, SlackSimulator):
        is_workflow = name == "Alerts"
        return await stage.platform.post_as_app(
            stage.channel_id,
            words,
            name=name,
            app_id="A0ALERTS" if is_workflow else "A0OTHER",
            user_id="" if is_workflow else "U0OTHER",
            thread_id=thread,
        )
    return await stage.platform.post_as_app(stage.channel_id, words, name=name, thread_id=thread)


async def app_id(stage: Stage) -> str:
    """Returns the id of the other app. In Discord it has one once it has written."""
    if isinstance(stage.platform, SlackSimulator):
        return "A0OTHER"
    await stage.platform.post_as_app(stage.channel_id, "I am here.", name=OTHER)
    return stage.platform.world.apps[OTHER].user_id


def answers(stage: Stage) -> list[SeenMessage]:
    return [one for one in stage.ours() if "I agree" in text_of(one)]


@BOTH
async def test_two_agents_exchange_at_most_two_messages_each(platform: PlatformName) -> None:
    async with staged(platform, SCENARIO) as stage:
        stage.program.change(allowed_apps=await app_id(stage))
        stage.program.start()
        await stage.connected()
        stage.thread_id = await app_says(stage, "what do you think?")
        await stage.until(lambda: len(answers(stage)) == 1, "the first answer")
        await app_says(stage, "Thank you! And what do you think now?")
        await stage.until(lambda: len(answers(stage)) == 2, "the second answer")
        await stage.settled(2)
        before = len(stage.messages())
        await app_says(stage, "Great. And what do you think of that?")
        await stage.until(lambda: "asks too often" in stage.program.log(), "the third is left")
        stage.thread_id = ""
        other = await app_says(stage, "what do you think here?")
        await stage.until(lambda: stage.program.log().count("asks too often") == 2, "elsewhere too")
        first = stage.rows("SELECT channel_id, thread_key FROM thread")
        assert (stage.runs(), len(first)) == (["completed"] * 2, 1)
        stage.thread_id = str(first[0][1])
        assert len(stage.messages()) == before + 1
        # people are heard as before
        await stage.say(f"@{stage.view().bot_name} sum it up")
        await stage.settled(3)
        told = str(stage.script.requests[0]["messages"])
        assert "[An app wrote this, not a person:]" in told
        assert OTHER in told
        assert "An app wrote" not in str(stage.last_request()["messages"]).rpartition("sum it")[2]
        assert other not in stage.threads()
