"""What people learn while a request or its answer waits for its turn, and what must not wait for what."""

import asyncio
from typing import Any

import pytest

from bots.delivery import next_step
from bots.delivery.content import AnswerPart, RunStatus
from bots.delivery.next_step import LONG_QUEUE
from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, RateLimiter
from bots.delivery.run_delivery import LONG_POST_QUEUE
from core.domain.errors import SurfaceRateLimited, SurfaceRefused
from core.run.execute import execute
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import Failure
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until


def limited(seconds: float) -> Failure:
    return Failure("post", SurfaceRateLimited("slow down", retry_after_seconds=seconds))


def statuses(stage: Stage) -> list[RunStatus]:
    posted = [content for one in stage.of(RunStatus) for content in one.contents]
    return [content for content in posted if isinstance(content, RunStatus)]


async def test_a_run_that_waits_long_for_its_turn_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_step, "LONG_WAIT_SECONDS", 0.2)
    stage.world.model.turns = [text("Done.")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await until(lambda: any(one.view.activity == LONG_QUEUE for one in statuses(stage)))
    await execute(run_id, stage.world.deps)
    await stage.shown()
    assert statuses(stage)[-1].view.state == "completed"
    assert LONG_QUEUE not in statuses(stage)[-1].view.activity


@pytest.mark.parametrize("refuses", [False, True])
async def test_an_answer_that_waits_long_is_announced_to_its_requester_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    monkeypatch.setattr(next_step, "LONG_WAIT_SECONDS", 0.1)
    await stage.use_status_after(60)
    stage.world.model.turns = [text("Done.")]
    stage.surface.failures = [limited(0.5)]
    if refuses:
        stage.surface.failures.append(Failure("tell", SurfaceRefused("no", code="not_in_channel")))
    run_id = await stage.run()
    run = await stage.world.read_run(run_id)
    assert run.requester is not None
    told = [] if refuses else [(stage.world.address, run.requester.person_id, LONG_POST_QUEUE)]
    assert stage.surface.told == told
    assert len(stage.of(AnswerPart)) == 1


async def test_an_answer_does_not_wait_for_a_status_that_may_not_be_posted_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_step, "LONG_WAIT_SECONDS", 0.05)
    stage.world.model.turns = [text("Done.")]
    stage.surface.failures = [limited(60)]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await until(lambda: not stage.surface.failures)
    await execute(run_id, stage.world.deps)
    async with asyncio.timeout(30):
        await stage.shown()
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Done.", run_id=run_id)
    assert statuses(stage)[-1].view.state == "completed"


@pytest.mark.parametrize(("burst", "shown"), [(3, ["completed"]), (1, [])])
async def test_a_status_gives_way_to_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, burst: int, shown: list[str]
) -> None:
    await stage.use_status_after(60)
    limiter = RateLimiter(MemoryRateBudget())
    limit = RateLimit(owner="slack:1", name="post", interval_seconds=1.0, burst=burst, is_proactive=True)
    post = stage.surface.post

    async def post_in_turn(*arguments: Any, **named: Any) -> str:
        await limiter.admit([limit], wait_seconds_max=30)
        return await post(*arguments, **named)

    monkeypatch.setattr(stage.surface, "post", post_in_turn)
    await limiter.admit([limit], wait_seconds_max=0)  # another run's answer
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("Done.")]
    run_id = await stage.run()
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Done.", run_id=run_id)
    assert [one.view.state for one in statuses(stage)[-1:]] == shown
    assert stage.surface.reactions[-1][1] == "done"
