"""Tests that a request that kills the program at every start is abandoned, and that people are notified once."""

import pytest

from bots.demo.thread_reader import buttons_of, text_of
from core.run.run_end import STOPPED_AT_THE_SAME_PLACE, WORKER_DEATHS_MAX
from tests.chaos.harness import PlatformName, Stage, staged
from tests.chaos.stories import TALK

DEADLY = "llm.openai.request.after:kill"
"""A failpoint inside a turn, before any of the turn is stored."""


async def killed_at_every_start(stage: Stage) -> None:
    """Lets the program die so often that its next start must abandon the run."""
    for _ in range(WORKER_DEATHS_MAX + 1):
        assert await stage.program.ended(60) == -9
        stage.program.start(failpoints=DEADLY)


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_a_run_that_kills_the_program_each_time_is_told_once(platform: PlatformName) -> None:
    async with staged(platform, TALK) as stage:
        stage.program.start(failpoints=DEADLY)
        await stage.connected()
        await stage.say("Hello")
        await killed_at_every_start(stage)
        await stage.until(lambda: stage.button("Retry"), "it is given up")
        await stage.settled(1)
        assert stage.program.is_running, "nothing is tried any more"
        assert stage.runs() == ["failed"]
        (status,) = stage.ours()
        assert text_of(status).count(STOPPED_AT_THE_SAME_PLACE) == 1
        assert [one.label for one in buttons_of(status)] == ["Retry"]
        assert f"{WORKER_DEATHS_MAX + 1} workers in a row died over it" in stage.program.log()
        assert stage.rows("SELECT state FROM delivery WHERE state != 'delivered'") == []
        assert stage.rows("SELECT run_id FROM lease WHERE run_id IS NOT NULL") == []
        stage.program.kill()
        stage.program.start()
        await stage.connected()
        await stage.press("Retry")
        await stage.until(lambda: stage.shows("Hi there."), "what kills no more is done")
        await stage.settled(2)
        assert stage.runs() == ["failed", "completed"]
        assert stage.script.problems == []
        told = [one for one in stage.ours() if STOPPED_AT_THE_SAME_PLACE in text_of(one)]
        assert len(told) == 1
