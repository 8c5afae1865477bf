"""What the stream tells at the end of a run, before its terminal event."""

from core.domain.errors import ModelRejected
from core.domain.events import AgentEvent, ErrorRaised, TurnFinished, TurnStarted
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
