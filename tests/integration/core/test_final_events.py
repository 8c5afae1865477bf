"""What the stream tells at the end of a run, before its terminal event."""

import pytest

from core.domain.budget import Budget, Limit
from core.domain.errors import ModelRejected
from core.domain.events import AgentEvent, ErrorRaised, FinishReached, TurnFinished, TurnStarted
from core.loop.run_context import LoopPolicy
from core.ports import TextDelta
from tests.fakes.streamed_model import calls
from tests.integration.core.conftest import World


def kinds(events: list[AgentEvent]) -> list[str]:
    return [event.kind for event in events]


async def test_a_turn_that_fails_is_over_too_and_its_error_is_told(world: World) -> None:
    world.model.turns = [
        calls(("echo", '{"text": "a"}')),
        [TextDelta(text="Let me"), ModelRejected("The key was refused.")],
    ]
    events = await world.events(await world.run("go"))
    assert kinds(events)[-5:] == ["turn_started", "response_started", "error_raised", "turn_finished", "run_failed"]
    assert events[-3] == ErrorRaised(message="The key was refused.")
    begun = [one.turn_id for one in events if isinstance(one, TurnStarted)]
    assert [one.turn_id for one in events if isinstance(one, TurnFinished)] == begun


@pytest.mark.parametrize(
    ("reason", "changes"),
    [("max_iterations", {"policy": LoopPolicy(turns_max=1)}), ("budget", {"budget": Budget(run=Limit(tokens=1))})],
)
async def test_a_limit_is_told_as_the_finish(world: World, reason: str, changes: dict[str, object]) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}'))]
    events = await world.events(await world.with_deps(**changes).run("go"))
    assert kinds(events)[-4:] == ["finish_reached", "turn_finished", "finish_reached", "run_finished"]
    told = events[-2]
    assert isinstance(told, FinishReached)
    assert told.reason == reason
