"""What other agents do wrong over many turns and runs, and this one must not."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

from core.domain.budget import Budget, Limit
from core.domain.threads import IncomingFile
from core.loop.run_context import LoopPolicy
from core.ports import ModelDelta, Sandbox
from core.run.execute import execute
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World

TURNS = 60


def echoes(number: int) -> list[list[ModelDelta | Exception | asyncio.Event]]:
    return [calls(("echo", json.dumps({"text": f"line {one}"}))) for one in range(number)]


async def long_run(world: World) -> str:
    world.model.turns = [*echoes(TURNS), text("done")]
    return await world.run("go")


async def test_no_turn_adds_words_that_nobody_said(world: World) -> None:
    """A standing "what next?" after each step is a third of the history, paid for in each call."""
    await long_run(world)
    for earlier, later in pairwise(world.model.requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        added = later.messages[len(earlier.messages) :]
        assert [one["role"] for one in added] == ["assistant", "tool"]


async def test_each_run_has_all_its_turns(world: World) -> None:
    """A count that is not set back leaves later runs with fewer and fewer steps."""
    world.with_deps(policy=LoopPolicy(turns_max=2))
    for number in range(3):
        world.model.turns = [calls(("echo", json.dumps({"text": str(number)}))), text("done")]
        assert (await world.read_end(await world.run("go"))).finish_reason == "stop"


async def test_what_earlier_runs_used_leaves_later_ones_their_whole_budget(world: World) -> None:
    """A limit that the whole process shares is reached one day, and then nobody is answered any more."""
    world.with_deps(budget=Budget(run=Limit(tokens=20)))
    for _ in range(4):
        world.model.turns = [text("Hello.")]
        assert (await world.read_end(await world.run("hi"))).finish_reason == "stop"


class NoSource:
    """Never asked."""

    def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        raise AssertionError(file.name)


class BrokenMachines:
    """Has a bug."""

    name = "broken"

    async def open(self, thread_id: str, *, fence: int) -> Sandbox:
        raise RuntimeError("a bug of ours")

    def release(self, thread_id: str) -> None: ...


async def test_a_message_that_breaks_its_run_breaks_no_later_one(world: World) -> None:
    """Read again by each next run, it would fail them all with the same words."""
    world.with_deps(sandboxes=BrokenMachines(), file_sources={"api": NoSource()})
    file = IncomingFile(file_ref="f", name="a.csv", mime_type="text/csv", size_bytes=3)
    first = await world.say("look at this", files=(file,))
    await execute(first, world.deps)
    assert (await world.read_run(first)).status == "failed"

    world.model.turns = [text("I am here.")]
    assert (await world.read_run(await world.run("are you there?"))).status == "completed"
    assert "look at this" in json.dumps(world.model.requests[0].messages)
