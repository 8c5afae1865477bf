"""Limits on what model calls may cost: checked before each call, told in one sentence with the figures."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from core.domain.budget import (
    Budget,
    Limit,
    Price,
    Spending,
    exhausted_message,
    price_usage,
    utc_day_start,
)
from core.domain.events import RunFinished
from core.domain.threads import Usage
from core.ports import ModelFinished
from tests.fakes.played_model import calls, text
from tests.integration.core.conftest import World


def test_a_run_under_its_limit_goes_on() -> None:
    budget = Budget(run=Limit(usd=1))
    assert exhausted_message(budget, Spending(run=Usage(cost_usd=0.999))) is None


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
    assert exhausted_message(budget, spending) == sentence


def test_the_day_begins_at_midnight_utc() -> None:
    late = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert utc_day_start(late) == datetime(2026, 3, 1, tzinfo=UTC)


PRICE = Price(input_per_million_usd=2.0, cached_per_million_usd=1.0, output_per_million_usd=10.0)
READ = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)


def test_a_cost_that_nobody_told_is_estimated_and_marked() -> None:
    assert price_usage(READ, PRICE) == replace(READ, cost_usd=2.6, estimated_usd=2.6)
    assert price_usage(READ, None) == READ


def test_what_the_provider_told_stands() -> None:
    told = replace(READ, cost_usd=0.5)
    assert price_usage(told, PRICE) == price_usage(told, replace(PRICE, is_set=True)) == told


def test_the_operators_price_goes_before_another_estimate() -> None:
    guessed = replace(READ, cost_usd=0.5, estimated_usd=0.5)
    assert price_usage(guessed, PRICE) == guessed
    assert price_usage(guessed, replace(PRICE, is_set=True)).cost_usd == 2.6


async def test_a_budget_in_dollars_holds_where_the_provider_tells_no_cost(world: World) -> None:
    def asked_of(model: str) -> Price | None:
        return PRICE if model == world.engine.model else None

    world.with_engine(budget=Budget(run=Limit(usd=0.0001)), price_of=asked_of)
    quiet = Usage(input_tokens=10, output_tokens=5)
    world.model.turns = [
        [
            *calls(("echo", f'{{"text": "{number}"}}'))[:-1],
            ModelFinished(finish_reason="tool_calls", usage=quiet),
        ]
        for number in range(5)
    ]
    run_id = await world.run("go")
    assert len(world.model.requests) == 2
    last = (await world.events(run_id))[-1]
    assert isinstance(last, RunFinished)
    assert last.message == "This run has used up its budget: 0.00014 of 0.0001 US dollars."
    usage = await world.engine.conversations.usage(run_id=run_id)
    assert usage.estimated_usd == usage.cost_usd == pytest.approx(0.00014)


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
