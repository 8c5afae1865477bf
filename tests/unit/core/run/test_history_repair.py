"""What is made up for after a worker has died in the middle of a run."""

import pytest

from core.domain.events import AgentEvent, Cursor, RunEvent, TurnFinished, TurnStarted
from core.run.history_repair import end_open_turns
from tests.fakes.memory_run import MemoryRunLog


def begun(turn_id: str) -> TurnStarted:
    return TurnStarted(turn_id=turn_id, number=1)


def ended(turn_id: str) -> TurnFinished:
    return TurnFinished(turn_id=turn_id)


@pytest.mark.parametrize(
    ("events", "made_up"),
    [
        ([], []),
        ([begun("1"), ended("1")], []),
        ([begun("1")], ["1"]),
        ([begun("1"), ended("1"), begun("2")], ["2"]),
        ([begun("1"), begun("2"), ended("1")], ["2"]),
        ([ended("0"), begun("1")], ["1"]),
    ],
)
def test_each_turn_that_was_begun_has_an_end(events: list[AgentEvent], made_up: list[str]) -> None:
    stored = [RunEvent(run_id="r", thread_id="t", cursor=Cursor(1, n), event=event) for n, event in enumerate(events)]
    log = MemoryRunLog()
    end_open_turns(stored, log)
    assert log.events == [TurnFinished(turn_id=turn_id, is_mended=True) for turn_id in made_up]
