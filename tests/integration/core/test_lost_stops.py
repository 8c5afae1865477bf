"""A stop whose signal is lost is stored all the same: the run looks for it by itself."""

import asyncio

from core.ports import TextDelta
from storage.memory.run_queue import MemoryStopSignals
from tests.fakes.streamed_model import text
from tests.integration.core.conftest import World
from tests.support.waiting import until


class DeafSignals(MemoryStopSignals):
    """Signals that never arrive, as where Redis took none from the process that heard the stop."""

    async def send(self, run_id: str) -> None: ...


async def test_a_stop_whose_signal_is_lost_stops_the_run(world: World) -> None:
    never = asyncio.Event()
    world.with_deps(signals=DeafSignals())
    world.model.turns = [[TextDelta(text="Half"), never, *text("Whole.")]]
    run_id, running = await world.begin("hello")
    await until(lambda: world.model.requests)
    assert await world.stops.request_stop(run_id)
    await asyncio.wait_for(running, 30)
    assert (await world.read_run(run_id)).status == "stopped"
