"""What happens if the platform does not let the bot write: the requester learns why, and the answer is kept."""

import asyncio
import json

import pytest

from bots.delivery.content import AnswerPart, RunStatus
from core.domain.errors import SurfaceRefused
from core.run.execute import execute
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import ELSEWHERE, Failure, FakeSurface
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until


def told(surface: FakeSurface) -> list[RunStatus]:
    """The statuses that were posted outside the thread."""
    found = [one.newest for one in surface.posted if one.address in ELSEWHERE]
    return [one for one in found if isinstance(one, RunStatus)]


async def test_an_answer_that_may_not_be_posted_is_kept_and_its_requester_told(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    run_id, running = await stage.begin()
    await stage.world.bench.until_started("x")
    await until(lambda: bool(stage.of(RunStatus)))
    stage.surface.closed.add(stage.world.address)
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    (status,) = told(stage.surface)
    assert status.view.state == "failed"
    assert status.view.can_retry
    assert "the channel is archived" in status.view.message
    assert "answer is kept" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"

    stage.surface.closed.clear()
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    (answer,) = [one.newest for one in stage.of(AnswerPart)]
    assert isinstance(answer, AnswerPart)
    assert answer.markdown == "The answer."
    assert stage.surface.reactions[-1][1] == "done"
    assert not await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    assert len(told(stage.surface)) == 1


async def test_no_work_is_done_in_a_thread_that_the_bot_may_not_write_to(stage: Stage) -> None:
    stage.surface.closed.add(stage.world.address)
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("never")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    async with asyncio.timeout(30):
        await execute(run_id, stage.world.deps)  # the wait is never released
    await stage.shown()
    assert (await stage.world.read_run(run_id)).status == "stopped"
    (status,) = told(stage.surface)
    assert "Press Retry once I may write there" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"


async def test_a_refused_reaction_makes_it_find_out_at_once_whether_it_may_write(stage: Stage) -> None:
    await stage.use_status_after(3600)
    stage.surface.closed.add(stage.world.address)
    stage.surface.failures.append(Failure("react", SurfaceRefused("no", code="is_archived")))
    stage.world.model.turns = [[asyncio.Event(), *text("never")]]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    async with asyncio.timeout(30):
        await execute(run_id, stage.world.deps)  # the model never answers
    await stage.shown()
    assert (await stage.world.read_run(run_id)).status == "stopped"
    assert len(told(stage.surface)) == 1


async def test_a_place_that_is_refused_too_is_followed_by_the_next(stage: Stage) -> None:
    stage.surface.closed |= {stage.world.address, ELSEWHERE[0]}
    stage.world.model.turns = [text("The answer.")]
    await stage.run()
    assert [one.address for one in stage.surface.posted] == [ELSEWHERE[1]]


async def test_a_status_that_may_no_longer_be_edited_is_followed_by_its_end(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    _run_id, running = await stage.begin()
    await stage.world.bench.until_started("x")
    await until(lambda: bool(stage.of(RunStatus)))
    closed_window = SurfaceRefused("no", code="edit_window_closed")
    stage.surface.failures += [Failure("edit", closed_window)] * 20
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    states = [one.newest.view.state for one in stage.of(RunStatus) if isinstance(one.newest, RunStatus)]
    assert states == ["completed"]
    assert stage.surface.reactions[-1][1] == "done"


@pytest.mark.parametrize("missing", ["part", "file"])
async def test_what_is_refused_after_the_first_message_is_kept_and_told(stage: Stage, missing: str) -> None:
    """The permission goes between two parts of an answer, or between the answer and its last file."""
    names = [f"{letter}.txt" for letter in "abc"] if missing == "file" else []
    words = " ".join(["word"] * (350 if missing == "part" else 1))
    arguments = json.dumps({"text": words, "attachments": ", ".join(names)})
    stage.world.model.turns = [calls(("complete", arguments))]
    run_id = await stage.world.say("go")
    for name in names:
        await stage.put_file(run_id, name, b"numbers")
    stage.surface.on_post = lambda: stage.surface.closed.add(stage.world.address)
    await stage.use_status_after(3600)
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.deps)
    await stage.shown()
    (status,) = told(stage.surface)
    assert "the channel is archived" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"
    assert len(stage.of(AnswerPart)) == 1

    stage.surface.closed.clear()
    stage.surface.on_post = lambda: None
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    assert len(stage.of(AnswerPart)) == (2 if missing == "part" else 1)
    assert sorted(name for name, _ in stage.surface.all_files()) == names
    assert stage.surface.reactions[-1][1] == "done"


async def test_a_retry_that_is_refused_again_is_told_again(stage: Stage) -> None:
    await stage.use_status_after(3600)  # a status that is refused first would stop the run
    stage.surface.closed.add(stage.world.address)
    stage.world.model.turns = [text("The answer.")]
    run_id = await stage.run()
    assert len(told(stage.surface)) == 1
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    first, again = told(stage.surface)
    assert again.view.message == first.view.message
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
