"""The platform repeats, breaks off and is slow, people change their mind: one answer all the same, and no lost word."""

import time

import pytest

from tests.chaos.harness import PERSON, PlatformName
from tests.chaos.stories import SLEEP
from tests.integration.e2e.staging import BOTH, run_staged


@BOTH
@pytest.mark.parametrize("way", ["button", "word", "reaction", "deletion"])
async def test_a_stop_ends_a_running_command(platform: PlatformName, way: str) -> None:
    async with run_staged(platform, SLEEP) as stage:
        request = await stage.say("Sleep, please.")
        await stage.until(lambda: stage.workspace_file("marks.txt"), "the command runs")
        await stage.until(lambda: stage.button("Stop"), "there is a button")
        began = time.monotonic()
        match way:
            case "button":
                await stage.press("Stop")
            case "word":
                await stage.say(f"@{stage.view().bot_name} stop")
            case "reaction":
                sign = "x" if platform == "slack" else "❌"
                await stage.platform.react(PERSON, stage.channel_id, request, sign)
            case _:
                await stage.platform.delete(PERSON, stage.channel_id, request)
        await stage.until(lambda: stage.runs() == ["stopped"], "it stops")
        assert time.monotonic() - began < 30
        await stage.settled(1)
