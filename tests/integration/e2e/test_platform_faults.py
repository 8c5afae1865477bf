"""The platform repeats, breaks off and is slow, people change their mind: one answer all the same, and no lost word."""

import time

import pytest

from bots.demo.thread_reader import text_of
from tests.chaos.harness import PERSON, PlatformName, Stage
from tests.chaos.stories import SLEEP, TALK
from tests.integration.e2e.staging import run_staged

POSTS = {"slack": "chat.postMessage", "discord": "POST */messages"}


async def _answered_once(stage: Stage, runs: int = 1) -> None:
    await stage.until(lambda: stage.shows("Hi there."), "it answers", seconds=60)
    await stage.settled(runs)
    assert sum("Hi there." in text_of(one) for one in stage.ours()) == 1, stage.report()
    assert len(stage.ours()) == 2, stage.report()
    assert stage.runs() == ["completed"]


@pytest.mark.parametrize("platform", ["slack", "discord"])
@pytest.mark.parametrize(
    ("fault", "times"), [("error_after", 2), ("timeout_after", 1), ("server_error", 2), ("rate_limit", 4)]
)
async def test_a_post_in_doubt_is_made_once(platform: PlatformName, fault: str, times: int) -> None:
    async with run_staged(platform, TALK) as stage:
        stage.platform.misbehave(fault, method=POSTS[platform], times=times, seconds=0.5)
        await stage.say("Hello")
        await _answered_once(stage)


@pytest.mark.parametrize("platform", ["slack", "discord"])
@pytest.mark.parametrize("fault", ["duplicate", "drop_connection", "reconnect"])
async def test_a_message_starts_one_run_however_it_comes(platform: PlatformName, fault: str) -> None:
    async with run_staged(platform, TALK) as stage:
        if fault == "duplicate":
            stage.platform.misbehave(fault, times=10)
        else:
            stage.platform.misbehave(fault)
        await stage.say("Hello")
        await _answered_once(stage)


@pytest.mark.parametrize("platform", ["slack", "discord"])
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
