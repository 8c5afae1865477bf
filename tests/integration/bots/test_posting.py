"""Posting by several processes: whoever was away for a while looks whether the run is still its own."""

import pytest

from bots.delivery.content import AnswerPart
from bots.delivery.poster import Poster
from core.domain.errors import LeaseLost, SurfaceRateLimited
from core.domain.threads import Address
from core.stores import DeliveryDraft
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.surface import FakeSurface
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world


class Interrupted(FakeSurface):
    """Asks for patience at the first post; meanwhile another process takes over what is shown."""

    def __init__(self, world: World, deliveries: SqlDeliveries, run_id: str) -> None:
        super().__init__()
        self._world = world
        self._deliveries = deliveries
        self._run_id = run_id
        self._is_first = True

    async def post(self, *arguments: object, **named: object) -> str:
        if self._is_first:
            self._is_first = False
            await self._world.engine.claims.remove_worker("worker-1")
            assert await self._deliveries.claim(self._run_id, "worker-2") is not None
            raise SurfaceRateLimited("slowly", retry_after_seconds=0)
        return await super().post(*arguments, **named)


async def test_who_slept_before_a_post_does_not_post_what_another_has_taken_over(
    world: World,
) -> None:
    world.address = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="1.0")
    run_id = await world.say("go")
    deliveries = SqlDeliveries(world.database)
    rendering = await deliveries.claim(run_id, "worker-1")
    assert rendering is not None
    (answer,) = await deliveries.plan(rendering, [DeliveryDraft(slot="answer", body={})])
    surface = Interrupted(world, deliveries, run_id)
    poster = Poster(world.address, surface, rendering, deliveries, sure_seconds=0)

    with pytest.raises(LeaseLost):
        await poster.show(answer, AnswerPart(markdown="Hi."))

    assert surface.posted == []
