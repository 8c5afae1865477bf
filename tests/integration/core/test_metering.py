"""Every model call is charged once, also one that is left early or whose provider does not tell."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

import pytest
from sqlalchemy import select

from core.domain.budget import Price
from core.domain.errors import ModelUnavailable
from core.domain.threads import Usage
from core.llm.retry import stream_with_retries
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest, TextDelta
from storage.sql.tables import usages
from tests.fakes.streamed_model import text
from tests.integration.core.conftest import World


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
