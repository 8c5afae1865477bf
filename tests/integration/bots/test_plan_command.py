"""The word `plan`: what people see of a plan, and how they change it while it is carried out."""

import asyncio

from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.plan import OVER
from bots.inbound.receiver import ActionReceiver
from core.domain.ids import new_id
from core.domain.threads import Person
from core.run.execute import execute
from storage.memory.run_queue import MemoryRunQueue, MemoryStopSignals
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.talk import SqlFeedback
from storage.sql.stores.workspaces import SqlPairings
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import command_deps
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world
from tests.integration.core.flow.conftest import Played, plan_of, planned, said, shown
from tests.integration.core.flow.conftest import flow_world as flow_world

WAITS = calls(("wait", '{"text": "x"}'))


async def word(world: World, argument: str = "", signals: MemoryStopSignals | None = None) -> Outcome:
    receiver = ActionReceiver(
        inbox=world.inbox,
        stops=world.stops,
        queue=MemoryRunQueue(),
        signals=signals or world.signals,
        policy=AccessPolicy(),
        pairings=SqlPairings(world.database),
        feedback=SqlFeedback(world.database),
        commands=command_deps(world),
        wake_delivery=lambda _run_id: None,
        reopen_delivery=SqlDeliveries(world.database).reopen_delivery,
        follow_modes={"": "default"},
    )
    called = CommandCalled(
        address=world.address,
        dedupe_key=new_id(),
        name="plan",
        argument=argument,
        person=Person(person_id="U1", name="alice"),
    )
    return await receiver.receive_trusted(called)


class Working:
    """A flow that is in the middle of its first step while entered; leaving lets it go on to its end."""

    def __init__(self, world: World, *later: Played) -> None:
        self.world = world
        self.later = later

    async def __aenter__(self) -> str:
        world = self.world
        world.model.turns = [planned("Look", "Open", "Enter"), WAITS, *self.later]
        self.run_id = await world.say("go in")
        self.running = asyncio.ensure_future(execute(self.run_id, world.deps))
        await world.bench.until_started("x")
        return self.run_id

    async def __aexit__(self, *error: object) -> None:
        self.world.bench.gate("x").set()
        async with asyncio.timeout(30):
            await self.running


async def test_an_added_step_is_seen_at_once_and_done(flow_world: World) -> None:
    async with Working(flow_world, *[text(one) for one in ("a", "b", "c", "d", "in")]) as run_id:
        outcome = await word(flow_world, "add [research] Wave   back")
        assert not outcome.is_private
        assert "4. [ ] [research] Wave back" in outcome.notice
    assert ["active", "pending", "pending", "pending"] in await shown(flow_world, run_id)
    plan = await plan_of(flow_world, run_id)
    assert [step.result for step in plan.steps] == ["a", "b", "c", "d"]


async def test_a_plan_that_is_given_up_ends_the_run(flow_world: World) -> None:
    working = Working(flow_world)
    async with working as run_id:
        assert "It was given up." in (await word(flow_world, "stop")).notice
        async with asyncio.timeout(30):
            await working.running
    assert (await flow_world.read_end(run_id)).status == "stopped"
    assert (await shown(flow_world, run_id))[-1] == ["blocked", "pending", "pending"]
    assert (await word(flow_world, "add More")).notice == OVER


async def test_a_plan_given_up_unheard_ends_at_the_next_turn(flow_world: World) -> None:
    """The signal is lost where another process runs it; what is stored is not."""
    async with Working(flow_world) as run_id:
        await word(flow_world, "stop", signals=MemoryStopSignals())
    assert (await said(flow_world, run_id)).startswith("The plan was given up.")
    assert flow_world.model.turns == []
