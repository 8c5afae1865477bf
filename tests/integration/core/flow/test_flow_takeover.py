"""Wherever a worker dies in a flow, the next one goes on from what is stored: nothing runs twice, nothing is lost."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from core.domain.ids import new_id
from core.domain.plans import Plans
from core.domain.threads import Lease
from core.ports import ModelDelta, ModelRequest
from core.run.execute import execute
from core.stores import JournalEntry, RunEnd, RunResult
from storage.sql.stores.agents import SqlPlans
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import VanishingClaims, World, replace_dependencies
from tests.integration.core.flow.conftest import plan_of, planned, said

LINK = "https://example.com/two.csv"
TURNS = 5


async def answer(request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
    """A model that answers by what it is told last, so that it may be asked in any order."""
    last = str(request.messages[request.stable_messages - 1]["content"])
    if "Make a plan" in last:
        played = planned("[research] One", "Two")
    elif "You work on step 1" in last:
        played = calls(("echo", '{"text": "one"}'))
    elif "You work on step 2" in last:
        played = calls(("complete", json.dumps({"text": "two", "attachments": [LINK]})))
    else:
        played = text("one and two" if "The plan has come to its end" in last else "one")
    for delta in played:
        assert not isinstance(delta, Exception | asyncio.Event)
        yield delta


@dataclass
class Death:
    """The moment of a worker's death: the how-manieth passing of a place. After it nothing more is written."""

    place: str
    hit: int
    has_come: bool = False

    def passes(self, place: str) -> None:
        if self.has_come:
            raise asyncio.CancelledError
        if place != self.place:
            return
        self.hit -= 1
        if self.hit == 0:
            self.has_come = True
            raise asyncio.CancelledError


class DyingPlans(SqlPlans):
    death: Death

    async def change(
        self, thread_id: str, how: Callable[[Plans], Plans], *, lease: Lease | None = None, key: str = ""
    ) -> Plans:
        self.death.passes("plans.before")
        after = await super().change(thread_id, how, lease=lease, key=key)
        self.death.passes("plans.after")
        return after


class DyingJournal(SqlRunJournal):
    death: Death

    async def write(self, lease: Lease, entry: JournalEntry) -> None:
        self.death.passes("write.before")
        await super().write(lease, entry)
        self.death.passes("write.after")

    async def finish(self, lease: Lease, entry: JournalEntry, ending: RunResult) -> RunEnd | None:
        self.death.passes("finish.before")
        return await super().finish(lease, entry, ending)


async def told(world: World, death: Death) -> str:
    """The story with a death in it, to its end."""
    healthy = world.deps
    plans, journal = DyingPlans(world.database), DyingJournal(world.database)
    plans.death = journal.death = death
    world.address = replace(world.address, thread_key=new_id())
    run_id = await world.say("do one and two")
    worker_id = new_id()
    mortal = replace_dependencies(
        healthy, claims=VanishingClaims(world.database), plans=plans, journal=journal, worker_id=worker_id
    )
    with suppress(asyncio.CancelledError):
        await execute(run_id, mortal)
    if death.has_come:
        await SqlRunClaims(world.database).remove_worker(worker_id)
        await execute(run_id, replace(healthy, worker_id=new_id()))
    return run_id


@pytest.mark.parametrize("place", ["plans.before", "plans.after", "write.before", "write.after", "finish.before"])
async def test_a_flow_comes_to_its_end_wherever_its_worker_dies(flow_world: World, place: str) -> None:
    world = flow_world.with_deps(ask_model=answer)
    for hit in range(1, 40):
        world.bench.said.clear()
        death = Death(place, hit)
        run_id = await told(world, death)
        await is_whole(world, run_id)
        if not death.has_come:
            assert hit > 1
            return
    raise AssertionError("it dies without end")


async def is_whole(world: World, run_id: str) -> None:
    assert (await world.read_run(run_id)).status == "completed"
    assert await said(world, run_id) == "one and two"
    plan = await plan_of(world, run_id)
    assert [step.status for step in plan.steps] == ["completed", "completed"]
    assert [step.result for step in plan.steps] == ["one", "two"]
    assert plan.steps[1].attachments == (LINK,)
    assert world.bench.said in (["one"], [])
    history = await world.history(run_id)
    signs = Counter(json.dumps(one.metadata["flow"]) for one in history if one.metadata.get("flow"))
    assert set(signs.values()) == {1}
    assert sum(one.type == "assistant" for one in history) == TURNS
    asked = [str(call["id"]) for one in history for call in json.loads(json.dumps(one.content.get("tool_calls") or []))]
    answered = [str(one.content["tool_call_id"]) for one in history if "tool_call_id" in one.content]
    assert asked == answered
