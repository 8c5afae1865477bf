"""Wherever a worker dies in a flow, the next one goes on from what is stored: nothing runs twice, nothing is lost."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from core.domain.ids import new_id
from core.domain.plans import Plans
from core.domain.threads import Lease
from core.ports import ModelDelta, ModelRequest
from core.run.execute import execute
from core.run.run_end import WORKER_DEATHS_MAX
from core.stores import JournalEntry, RunEnd, RunResult
from storage.sql.stores.agents import SqlPlans
from storage.sql.stores.run_claims import SqlRunClaims
from storage.sql.stores.run_journal import SqlRunJournal
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import VanishingClaims, World, replace_dependencies
from tests.integration.core.flow.conftest import AGENTS, plan_of, planned, said, shown
from tests.integration.core.test_run_ends import DEADLY
from tests.support.narrow import require

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


async def died(world: World, times: int) -> str:
    """A run over whose first step so many workers have died."""
    deadly = calls(("wait", json.dumps({"text": DEADLY})))
    world.model.turns = [planned("[research] One", "[research] Two"), *[deadly] * times]
    run_id = await world.say("go")
    for number in range(times):
        world.bench.has_started(DEADLY).clear()
        await world.lose_worker(run_id, lambda: world.bench.until_started(DEADLY), name=f"w{number}")
    assert (await plan_of(world, run_id)).steps[0].status == "in_progress"
    return run_id


@pytest.mark.parametrize(
    ("deaths", "notes"),
    [(WORKER_DEATHS_MAX + 1, "the run broke off here"), (1, "stopped")],
    ids=["given up", "stopped"],
)
async def test_a_run_that_nobody_goes_on_with_leaves_no_step_under_way(
    flow_world: World, deaths: int, notes: str
) -> None:
    run_id = await died(flow_world, deaths)
    if notes == "stopped":
        await flow_world.stop(run_id)
    await execute(run_id, flow_world.deps)
    first, second = (await plan_of(flow_world, run_id)).steps
    assert (first.status, first.notes, second.status) == ("blocked", notes, "not_started")
    assert (await shown(flow_world, run_id))[-1] == ["blocked", "pending"]


async def test_the_plan_of_another_run_stays_as_it_is(flow_world: World) -> None:
    run_id = await died(flow_world, WORKER_DEATHS_MAX + 1)
    thread_id = (await flow_world.read_run(run_id)).thread_id
    await require(flow_world.deps.stores.plans).change(
        thread_id, lambda plans: tuple(replace(plan, run_id="another") for plan in plans)
    )
    await execute(run_id, flow_world.deps)
    assert (await plan_of(flow_world, run_id)).steps[0].status == "in_progress"


async def test_a_team_goes_on_as_it_began_after_a_takeover(flow_world: World, tmp_path: Path) -> None:
    world, folder = flow_world, tmp_path / "agents"
    world.model.turns = [planned("[research] One", "[data-analysis] Two"), calls(("wait", '{"text": "first"}'))]
    run_id = await world.say("do one and two")
    await world.lose_worker(run_id, lambda: world.bench.until_started("first"))
    changed = AGENTS["data-analysis"].replace("You count", "You guess").replace("counter", "other")
    (folder / "data-analysis.yaml").write_text(changed)
    (folder / "research.yaml").unlink()
    world.model.turns = [text("one"), text("two"), text("one and two")]
    await execute(run_id, world.deps)
    assert await said(world, run_id) == "one and two"
    later = world.model.requests[-3:]
    assert [one.model for one in later] == ["test", "openai/counter", "test"]
    assert "You count" in str(later[1].messages[0]["content"])
