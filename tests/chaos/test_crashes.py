"""Killed at any named place in the middle of a run and started again, the program tells the story to its end."""

import asyncio
from dataclasses import dataclass

import pytest

from core.tasks import cancel, spawn
from tests.chaos import report_story
from tests.chaos.harness import Stage, staged


@dataclass(frozen=True)
class Crash:
    point: str
    hit: int = 1


REPORT = [
    ("storage.open", 1),
    ("storage.migrate", 1),
    ("storage.accept", 1),
    ("storage.accept", 2),
    ("storage.claim_run", 1),
    ("storage.claim_run", 2),
    ("storage.heartbeat", 3),
    ("storage.claim_rendering", 1),
    ("storage.claim_rendering", 2),
    ("storage.plan", 1),
    ("storage.plan", 2),
    ("storage.plan", 4),
    ("storage.record", 1),
    ("storage.record", 2),
    ("storage.record", 3),
    ("storage.record", 5),
    ("storage.record", 8),
    ("storage.close_rendering", 1),
    ("storage.close_rendering", 2),
    ("storage.write", 1),
    ("storage.write", 2),
    ("storage.write", 4),
    ("storage.write", 6),
    ("storage.finish", 1),
    ("storage.finish", 2),
    ("slack.post", 1),
    ("slack.post", 2),
    ("slack.post", 4),
    ("slack.edit", 1),
    ("slack.edit", 3),
    ("slack.upload", 1),
    ("slack.upload", 2),
    ("slack.react", 1),
    ("slack.react", 2),
    ("slack.download", 1),
    ("slack.typing", 1),
    ("sandbox.open", 1),
    ("sandbox.execute", 1),
    ("sandbox.execute", 2),
    ("sandbox.write", 1),
    ("sandbox.write", 2),
    ("sandbox.delete", 1),
    ("sandbox.terminate", 1),
    ("llm.openai.request", 1),
    ("llm.openai.request", 3),
    ("llm.openai.request", 5),
]


async def crashed(stage: Stage, point: str) -> None:
    """Waits for the death at the point, and starts the program again."""
    assert await stage.program.ended(60) == -9
    stage.shown_before = {one.message_id for one in stage.ours()} if stage.thread_id else set()
    stage.program.start()


async def play(stage: Stage, failpoint: str) -> None:
    stage.program.start(failpoints=failpoint)
    crash = spawn(crashed(stage, failpoint), name="crash")
    try:
        await report_story.tell(stage)
        try:
            await asyncio.wait_for(asyncio.shield(crash), 5)
        except TimeoutError:
            raise AssertionError(f"the story never passes {failpoint}\n{stage.report()}") from None
        await stage.settled(2)
    finally:
        await cancel(crash)
    try:
        report_story.check(stage)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{stage.report()}") from error


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("name", "hit"), REPORT)
async def test_in_slack(name: str, hit: int, when: str) -> None:
    async with staged("slack", report_story.SCENARIO) as stage:
        await play(stage, f"{name}.{when}:kill:{hit}")
