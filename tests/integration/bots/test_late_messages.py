"""What people see of a run that they write to while it ends."""

from bots.delivery.content import AnswerPart, RunStatus
from core.failpoints import Failpoint
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.delivery_stage import Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.waiting import until


def answers(stage: Stage) -> list[str]:
    newest = [one.newest for one in stage.surface.posted if one.contents]
    return [one.markdown for one in newest if isinstance(one, AnswerPart)]


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
