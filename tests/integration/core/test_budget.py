"""What model calls cost: charged once each, checked before each call, told in one sentence with the figures."""

from dataclasses import replace
from functools import partial

import pytest

from core.context.untrusted_text import unwrap_message
from core.domain.budget import Budget, Limit, Price, Spending, Spent, find_exhausted, price_usage
from core.domain.errors import ModelUnavailable
from core.domain.threads import APP_PREFIX, Person, Usage
from core.llm.retry import stream_with_retries
from core.ports import ModelFinished, TextDelta
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World

FREE = Spent(tokens=10**9, unpriced_tokens=10**9)
TIGHT, MUCH = Budget(run=Limit(usd=2, tokens=100)), Spent(cost_usd=3, tokens=200)


def sentence_of(budget: Budget, spending: Spending, *, is_chat: bool = True) -> str:
    end = find_exhausted(budget, spending, is_chat=is_chat)
    return end.sentence if end else ""


@pytest.mark.parametrize(
    ("budget", "spending", "sentence"),
    [
        (
            Budget(run=Limit(usd=0.5), has_admins=True),
            Spending(run=Spent(cost_usd=0.51234)),
            "This run has used up its budget: 0.512 of 0.5 US dollars. Continue starts a run with a new one."
            " An admin of this bot can raise it with `budget run 1`.",
        ),
        (
            Budget(person=Limit(tokens=1000), has_admins=True),
            Spending(person=Spent(tokens=1100)),
            "Your budget for today is used up: 1,100 of 1,000 tokens. A new one starts at 00:00 UTC."
            " An admin of this bot can raise it with `budget person 2000 tokens`.",
        ),
        (
            Budget(person=Limit(usd=20)),
            Spending(person=Spent(cost_usd=1, tokens=10_000_000, unpriced_tokens=9_500_000)),
            "Your budget for today is used up: 20.00 of 20.00 US dollars"
            " (a million tokens of unknown price count 2 dollars). A new one starts at 00:00 UTC."
            " Whoever runs this bot can raise it with the setting `THREADHAND_BUDGET_USER_DAY_USD`,"
            " or name admins in `THREADHAND_ADMINS`, who can change it in chat.",
        ),
    ],
)
def test_the_sentence_names_the_limit_and_who_can_raise_it(budget: Budget, spending: Spending, sentence: str) -> None:
    assert sentence_of(budget, spending) == sentence


@pytest.mark.parametrize(
    ("budget", "spending", "part"),
    [
        (Budget(run=Limit(usd=1)), Spending(run=Spent(cost_usd=0.999)), ""),
        (Budget(run=Limit(usd=2)), Spending(run=FREE), "dollars"),
        (Budget(run=Limit(usd=2), counts_unpriced=False), Spending(run=FREE), ""),
        (TIGHT, Spending(run=MUCH), "200 of 100 tokens"),
        (TIGHT, Spending(run=MUCH, changed_limits={"run": Limit(usd=5)}), ""),
        (TIGHT, Spending(channel=MUCH, changed_limits={"channel": Limit(tokens=150)}), "200 of 150 tokens"),
    ],
    ids=["under it", "no price", "free model", "over it", "raised", "lowered"],
)
def test_a_limit_counts_what_it_is_for(budget: Budget, spending: Spending, part: str) -> None:
    """A changed limit takes the place of the configured one."""
    sentence = sentence_of(budget, spending)
    assert bool(sentence) is bool(part)
    assert part in sentence


PRICE = Price(input_per_million_usd=2.0, cached_per_million_usd=1.0, output_per_million_usd=10.0)
READ = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
GUESSED = replace(READ, cost_usd=0.5, estimated_usd=0.5)


@pytest.mark.parametrize(
    ("told", "price", "expected"),
    [
        (READ, PRICE, replace(READ, cost_usd=2.6, estimated_usd=2.6)),
        (READ, None, READ),
        (replace(READ, cost_usd=0.5), PRICE, replace(READ, cost_usd=0.5)),
        (replace(READ, cost_usd=0.5), replace(PRICE, is_set=True), replace(READ, cost_usd=0.5)),
        (GUESSED, PRICE, GUESSED),
        (GUESSED, replace(PRICE, is_set=True), replace(READ, cost_usd=2.6, estimated_usd=2.6)),
    ],
    ids=["not told", "no price", "told", "told, and a price set", "guessed", "guessed, and a price set"],
)
def test_a_cost_is_what_was_told_or_else_the_operators_or_another_estimate(
    told: Usage, price: Price | None, expected: Usage
) -> None:
    assert price_usage(told, price) == expected


async def test_a_run_stops_before_the_next_model_call(world: World) -> None:
    world.with_deps(budget=Budget(run=Limit(usd=0.002)))
    world.model.turns = [calls(("echo", f'{{"text": "{number}"}}')) for number in range(5)]
    run_id = await world.run("go")
    assert len(world.model.requests) == 2
    assert world.bench.said == ["0", "1"]
    last = await world.read_end(run_id)
    assert (last.finish_reason, last.can_continue) == ("budget", True)
    assert "0.002 of 0.002 US dollars" in last.message
    assert last.message.endswith("Done so far: 2 turns with 2 tool calls: `echo` 2x. It is kept.")
    run = await world.read_run(run_id)
    assert (run.status, run.finish_reason) == ("completed", "budget")


async def test_the_day_of_a_person_counts_over_runs_and_asks_no_model(world: World) -> None:
    world.with_deps(budget=Budget(person=Limit(tokens=15)))
    world.model.turns = [text("one")]
    await world.run("go")
    run_id = await world.run("again")
    assert len(world.model.requests) == 1
    history = await world.history(run_id)
    assert unwrap_message(str(history[-1].content["content"])) == "again"
    last = await world.read_end(run_id)
    assert not last.can_continue
    assert last.message.endswith("Nothing was done in this run.")


async def used(world: World, run_id: str) -> Usage:
    return await world.deps.stores.conversations.usage(run_id=run_id)


async def test_a_provider_that_tells_nothing_is_estimated(world: World) -> None:
    world.model.turns = [[TextDelta(text="word " * 100), ModelFinished(finish_reason="stop", usage=None)]]
    usage = await used(world, await world.run("go"))
    assert 80 <= usage.output_tokens <= 200
    assert usage.input_tokens > 0


async def test_a_stream_that_dies_is_charged_beside_the_one_after_it(world: World) -> None:
    world.model.turns = [[TextDelta(text="word " * 100), ModelUnavailable("away")], text("done")]
    world.with_deps(ask_model=partial(stream_with_retries, world.model, scale_seconds=0.01))
    assert (await used(world, await world.run("go"))).output_tokens >= 85


async def test_the_day_of_an_app_is_its_own_and_no_persons(world: World) -> None:
    world.with_deps(budget=Budget(person=Limit(tokens=1_000), app=Limit(tokens=15)))
    world.model.turns = [text("one"), text("two"), text("three")]
    app, other = (Person(person_id=f"{APP_PREFIX}A{n}", name="Alerts") for n in (1, 2))
    world.author, person = app, world.author
    await world.run("go")
    last = await world.read_end(await world.run("again"))
    assert last.message.startswith("Today's budget of the app that asked is used up: ")
    assert "`THREADHAND_BUDGET_APP_DAY_TOKENS`" in last.message
    assert len(world.model.requests) == 1
    for author in (other, person):
        world.author = author
        await world.run("go")
    assert len(world.model.requests) == 3
