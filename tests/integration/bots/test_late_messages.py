"""What people see of a run that they write to while it ends."""

import asyncio

import pytest

from bots.delivery.content import AnswerPart, RunStatus
from core.failpoints import Failpoint
from core.ports import ModelDelta, TextDelta
from core.run.execute import execute
from core.tasks import spawn
from tests.fakes.streamed_model import Played, calls, ended, text
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until

RISKS = "The three risks: liability, term, price."


def plain(late: asyncio.Event) -> Played:
    return [TextDelta(text=RISKS), late, ended()]


def completed(late: asyncio.Event) -> Played:
    *deltas, end = calls(("complete", f'{{"text": "{RISKS}"}}'))
    assert isinstance(end, ModelDelta)
    return [*deltas, late, end]


def answers(stage: Stage) -> list[str]:
    newest = [one.newest for one in stage.surface.posted if one.contents]
    return [one.markdown for one in newest if isinstance(one, AnswerPart)]


@pytest.mark.parametrize("first", [plain, completed])
async def test_a_written_answer_is_posted_before_the_run_goes_on(stage: Stage, first) -> None:
    late, second = asyncio.Event(), asyncio.Event()
    stage.world.model.turns = [first(late), [second, *text("You are welcome!")]]
    run_id, running = await stage.start_followed("Which risks does the contract hold?")
    await until(lambda: stage.world.model.requests)
    assert await stage.world.say("thanks for looking into it") == run_id
    late.set()
    await until(lambda: answers(stage) == [RISKS])
    assert not running.done()
    second.set()
    await running
    await stage.shown()
    assert answers(stage) == [RISKS, "You are welcome!"]
    assert len(stage.of(RunStatus)) == 1


async def test_a_stop_of_a_queued_run_is_shown_although_no_worker_is_free(stage: Stage) -> None:
    run_id = await stage.world.say("delete everything")
    await stage.followed(run_id)
    await stage.world.stop(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    (status,) = stage.of(RunStatus)
    assert isinstance(status.newest, RunStatus)
    view = status.newest.view
    assert (view.state, view.message) == ("stopped", "Stopped before it began.")
    await spawn(execute(run_id, stage.world.deps), name="a worker that comes late")
    assert len(await stage.world.runs(run_id)) == 1
    assert not stage.world.model.requests


async def test_a_run_whose_events_are_gone_is_shown_as_ended(stage: Stage) -> None:
    """The bot was away for longer than events are kept."""
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    _, running = await stage.start_followed()
    await until(lambda: stage.of(RunStatus))
    await stage.delivery.close()
    stage.world.bench.gate("x").set()
    await running
    await stage.world.database.write(
        Failpoint("test.events"), lambda c: c.exec_driver_sql("DELETE FROM run_event").close()
    )
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    (status,) = stage.of(RunStatus)
    assert isinstance(status.newest, RunStatus)
    view = status.newest.view
    assert (view.state, view.can_stop) == ("completed", False)
    assert answers(stage) == ["The answer."]
    assert stage.surface.reactions[-1] == ("1", "done")
