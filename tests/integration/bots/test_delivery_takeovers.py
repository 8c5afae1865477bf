"""A process that slept while another one took its runs over shows nothing more of them."""

import asyncio

from core.domain.threads import Address
from core.ports import Precondition, Reaction
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import FakeSurface
from tests.integration.bots.delivery_stage import Stage, stage, world  # noqa: F401 - fixtures
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
