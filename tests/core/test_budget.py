"""Limits on what model calls may cost: checked before each call, told in one sentence with the figures."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from core.budget import Budget, Limit, Spending, day_start, exhausted
from core.events import RunFinished
from core.threads import Usage
from tests.core.conftest import World
from tests.fakes.played_model import calls, text


def test_a_run_under_its_limit_goes_on() -> None:
    budget = Budget(run=Limit(usd=1))
    assert exhausted(budget, Spending(run=Usage(cost_usd=0.999))) is None


@pytest.mark.parametrize(
    ("budget", "spending", "sentence"),
    [
        (
            Budget(run=Limit(usd=0.5)),
            Spending(run=Usage(cost_usd=0.51234)),
            "This run has used up its budget: 0.512 of 0.5 US dollars.",
        ),
        (
            Budget(person_day=Limit(tokens=1000)),
            Spending(person_day=Usage(input_tokens=900, output_tokens=200)),
            "Your budget for today is used up: 1,100 of 1,000 tokens. It starts anew at 00:00 UTC.",
        ),
        (
            Budget(workspace_day=Limit(usd=0)),
            Spending(),
            "Today's budget of this workspace is used up: 0.00 of 0.00 US dollars."
            " It starts anew at 00:00 UTC.",
        ),
    ],
)
def test_the_sentence_has_the_figures(budget: Budget, spending: Spending, sentence: str) -> None:
    assert exhausted(budget, spending) == sentence


def test_the_day_begins_at_midnight_utc() -> None:
    late = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert day_start(late) == datetime(2026, 3, 1, tzinfo=UTC)


async def test_a_run_stops_before_the_next_model_call(world: World) -> None:
    world.with_engine(budget=Budget(run=Limit(usd=0.002)))
    world.model.turns = [calls(("echo", f'{{"text": "{number}"}}')) for number in range(5)]
    run_id = await world.run("go")
    assert len(world.model.requests) == 2
    assert world.bench.said == ["0", "1"]
    last = (await world.events(run_id))[-1]
    assert isinstance(last, RunFinished)
    assert (last.finish_reason, last.can_continue) == ("budget", False)
    assert last.message == "This run has used up its budget: 0.002 of 0.002 US dollars."
    run = await world.engine.conversations.run(run_id)
    assert run is not None
    assert (run.status, run.finish_reason) == ("completed", "budget")


async def test_the_day_of_a_person_counts_over_runs_and_asks_no_model(world: World) -> None:
    world.with_engine(budget=Budget(person_day=Limit(tokens=15)))
    world.model.turns = [text("one")]
    await world.run("go")
    run_id = await world.run("again")
    assert len(world.model.requests) == 1
    history = await world.history(run_id)
    assert history[-1].content["content"] == "alice (U1):\nagain"
