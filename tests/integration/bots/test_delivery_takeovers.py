"""A process that slept while another one took its runs over shows nothing more of them."""

import asyncio
from collections.abc import Sequence

import pytest

from bots.delivery.poster import Poster
from core.domain.errors import StorageUnavailable
from core.domain.threads import Address
from core.ports import Precondition, Reaction
from core.stores import Delivery, DeliveryDraft, DeliveryLease
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import FakeSurface
from tests.integration.bots.delivery_stage import Stage, stage, world  # noqa: F401 - fixtures
from tests.support.narrow import require
from tests.support.waiting import until


class Slow(FakeSurface):
    """Its reactions wait for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.reacting = asyncio.Event()
        self.gate = asyncio.Event()

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        self.reacting.set()
        await self.gate.wait()
        await super().react(address, message_ref, reaction, precondition=precondition)


async def taken_over(stage: Stage, run_id: str) -> None:  # noqa: F811 - the fixture above
    await stage.world.deps.stores.claims.remove_worker("worker-1")
    assert await SqlDeliveries(stage.world.database).claim(run_id, "worker-2")


async def test_a_reaction_on_its_way_is_not_the_last_one(stage: Stage) -> None:  # noqa: F811
    stage.surface = surface = Slow()
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id, running = await stage.begin()
    await until(surface.reacting.is_set)
    await taken_over(stage, run_id)
    stage.world.bench.gate("x").set()
    await running
    surface.gate.set()
    await until(lambda: stage.delivery.active_runs() == 0)
    assert surface.reactions[-1] == ("1", "done")


async def test_a_reaction_on_its_way_is_not_the_last_one_on_an_answered_question(
    stage: Stage,  # noqa: F811
) -> None:
    """The run that asked has no final reaction: the run of the answer sets it."""
    stage.surface = surface = Slow()
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), calls(("ask", '{"text": "Which one?"}')), text("done")]
    run_id, running = await stage.begin()
    await until(surface.reacting.is_set)
    await taken_over(stage, run_id)
    stage.world.bench.gate("x").set()
    await running
    await stage.world.run("this one")
    surface.gate.set()
    await until(lambda: stage.delivery.active_runs() == 0)
    assert surface.reactions[-1] == ("1", "done")


async def test_whoever_slept_gives_no_reaction(stage: Stage) -> None:  # noqa: F811
    await stage.delivery.close()
    run_id = await stage.world.say("go")
    deliveries = SqlDeliveries(stage.world.database)
    rendering = require(await deliveries.claim(run_id, "worker-1"))
    poster = Poster(stage.world.address, stage.surface, rendering, deliveries, sure_seconds=0)
    await poster.set_reaction("m1", "seen")
    assert stage.surface.reactions == [("m1", "seen")]
    await taken_over(stage, run_id)
    await poster.set_reaction("m1", "seen")
    assert len(stage.surface.reactions) == 1


class FailingOnce(SqlDeliveries):
    """The next look at the lease finds no database."""

    is_down = True

    async def plan(self, rendering: DeliveryLease, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        if self.is_down:
            self.is_down = False
            raise StorageUnavailable("the database refuses connections")
        return await super().plan(rendering, drafts)


async def test_a_final_reaction_without_database_is_tried_again(stage: Stage) -> None:  # noqa: F811
    await stage.delivery.close()
    run_id = await stage.world.say("go")
    deliveries = FailingOnce(stage.world.database)
    rendering = require(await deliveries.claim(run_id, "worker-1"))
    poster = Poster(stage.world.address, stage.surface, rendering, deliveries, sure_seconds=0)
    with pytest.raises(StorageUnavailable):
        await poster.set_reaction("m1", "done")
    await poster.set_reaction("m1", "done")
    assert stage.surface.reactions == [("m1", "done")]
