"""Every model call is charged once, also one that is left early or whose provider does not tell."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import pytest
from sqlalchemy import select

from core.dialects.xml import XmlDialect
from core.domain.budget import Price
from core.domain.errors import ModelUnavailable
from core.domain.threads import Usage
from core.llm.retry import stream_with_retries
from core.loop.run_context import LoopPolicy
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest, TextDelta
from storage.sql.tables import usages
from tests.fakes.streamed_model import invokes, pieces, text
from tests.integration.core.conftest import World


async def used(world: World, run_id: str) -> Usage:
    return await world.deps.stores.conversations.usage(run_id=run_id)


async def test_an_answer_that_the_limit_of_calls_cuts_off_is_charged(world: World) -> None:
    world.with_deps(dialect=XmlDialect(), policy=LoopPolicy(xml_calls_max=1))
    both = invokes(("echo", {"text": "a"}), ("echo", {"text": "b"}))
    world.model.turns = [text(*pieces(both)), text("done")]
    usage = await used(world, await world.run("go"))
    # the second call tells (10, 5) itself; the first is estimated
    assert usage.input_tokens > 10
    assert usage.output_tokens > 5


async def test_a_provider_that_tells_nothing_is_estimated(world: World) -> None:
    world.model.turns = [[TextDelta(text="word " * 100), ModelFinished(finish_reason="stop", usage=None)]]
    usage = await used(world, await world.run("go"))
    assert 80 <= usage.output_tokens <= 200
    assert usage.input_tokens > 0


async def test_a_stream_that_dies_is_charged_beside_the_one_after_it(world: World) -> None:
    world.model.turns = [[TextDelta(text="word " * 100), ModelUnavailable("away")], text("done")]
    world.with_deps(ask_model=partial(stream_with_retries, world.model, scale_seconds=0.01))
    assert (await used(world, await world.run("go"))).output_tokens >= 85


@dataclass
class Away:
    """A model whose service is down, and its fallback in its place."""

    fallback: LLM
    down: str

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        if request.model == self.down:
            raise ModelUnavailable("Down.")
        async for delta in self.fallback.stream(request):
            yield delta


async def test_a_fallback_that_answers_is_booked_and_priced_under_its_own_name(world: World) -> None:
    down = Away(world.model, world.deps.defaults.model)

    def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        return stream_with_retries(down, request, fallbacks=("dear",), attempts_max=1)

    prices = {world.deps.defaults.model: 1.0, "dear": 1000.0}

    def price_of(model: str) -> Price:
        dollars = prices[model]
        return Price(input_per_million_usd=dollars, cached_per_million_usd=0, output_per_million_usd=dollars)

    world.with_deps(ask_model=ask, price_of=price_of)
    quiet = Usage(input_tokens=10, output_tokens=5)
    world.model.turns = [[TextDelta(text="hi"), ModelFinished(finish_reason="stop", usage=quiet)]]
    usage = await used(world, await world.run("go"))

    assert usage.cost_usd == usage.estimated_usd == pytest.approx(0.015)
    booked = await world.database.read(lambda c: c.execute(select(usages.c.model)).all())
    assert [row.model for row in booked] == ["dear"]


async def test_an_answer_of_a_fallback_that_is_left_early_is_booked_under_its_own_name(world: World) -> None:
    down = Away(world.model, world.deps.defaults.model)

    begun, never = asyncio.Event(), asyncio.Event()

    async def ask(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        answers = stream_with_retries(down, request, fallbacks=("dear",), attempts_max=1)
        async with aclosing(answers) as deltas:
            async for delta in deltas:
                begun.set()
                yield delta

    world.with_deps(ask_model=ask)
    world.model.turns = [[TextDelta(text="word " * 100), TextDelta(text="more"), never]]
    run_id, running = await world.begin("go")
    await asyncio.wait_for(begun.wait(), 30)
    await world.stop(run_id)
    await asyncio.wait_for(running, 30)

    booked = await world.database.read(lambda c: c.execute(select(usages)).all())
    assert [row.model for row in booked] == ["dear"]
    assert booked[0].output_tokens >= 80
