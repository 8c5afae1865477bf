"""Tests that runs wait for a platform that makes the program wait at its start."""

from tests.chaos.harness import staged
from tests.chaos.stories import TALK


async def test_a_run_waits_until_slack_lets_the_program_sign_in() -> None:
    """A run in an older thread reads what people said there."""
    async with staged("slack", TALK) as stage:
        stage.program.start(failpoints="llm.openai.request.before:kill:2")
        await stage.connected()
        await stage.say("Hello")
        await stage.settled(1)
        await stage.say(f"@{stage.view().bot_name} Hello")
        assert await stage.program.ended(60) == -9
        stage.platform.misbehave("slow", method="auth.test", times=1, seconds=4)
        stage.program.start()
        await stage.settled(2)
        assert stage.runs() == ["completed", "completed"]
