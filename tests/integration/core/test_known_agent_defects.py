"""What other agents do wrong, and this one must not."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.domain.budget import Budget, Limit
from core.domain.errors import ModelRejected, StorageUnavailable
from core.domain.threads import IncomingFile
from core.domain.wire_format import suna_objects
from core.loop.run_context import LoopPolicy
from core.ports import Sandbox
from core.run.execute import execute
from core.stores import LoadedRun
from core.tools.tool import Strategy, ToolContext, ToolSet
from storage.sql.stores.conversations import SqlConversations
from tests.fakes.streamed_model import calls, invokes, pieces, text
from tests.integration.core.conftest import EchoParams, World
from tests.support.narrow import require

DIALECTS: dict[str, Dialect] = {"native": NativeDialect(), "xml": XmlDialect(), "react": ReactDialect()}


def two_calls(dialect: str) -> Any:
    """An answer that calls `echo` with a and with b, in many pieces."""
    if dialect == "native":
        return calls(("echo", '{"text": "a"}'), ("echo", '{"text": "b"}'), said="Both.")
    if dialect == "xml":
        return text(*pieces(invokes(("echo", {"text": "a"}), ("echo", {"text": "b"}))))
    lines = "".join(f'Action: echo\nAction Input: {{"text": "{one}"}}\n' for one in "ab")
    return text(*pieces(f"Thought: both\n{lines}"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_whatever_the_settings_what_was_read_is_run_and_answered(world: World, dialect: str, limit: int) -> None:
    """Calls that are parsed and then never run, or run and then never answered, are lost in silence."""
    switches = itertools.product((True, False), (True, False), get_args(Strategy))
    expected = list[str]()
    for on_stream, streamed, strategy in switches:
        policy = LoopPolicy(executes_on_stream=on_stream, is_streamed=streamed, strategy=strategy, xml_calls_max=limit)
        world.with_deps(dialect=DIALECTS[dialect], policy=policy)
        world.bench.said.clear()
        world.model.turns = [two_calls(dialect), text("Final Answer: done")]
        run_id = await world.run("go")
        told = "a" if limit == 1 and dialect != "native" else "ab"
        assert sorted(world.bench.said) == list(told), policy
        expected += [f"echo {letter}" for letter in told]
        assert [result["output"] for result in await world.tool_results(run_id)] == expected, policy


async def test_a_call_of_a_failed_model_ends_as_failed_everywhere(world: World) -> None:
    world.model.turns = [[ModelRejected("The key was refused.")]]
    run_id = await world.run("go")
    run = await world.read_run(run_id)
    assert run.status == "failed"
    last = suna_objects((await world.deps.stores.conversations.events(run_id))[-1])[-1]
    assert last == {"type": "status", "status": "failed", "message": "The key was refused."}
    assert require(await world.deps.stores.conversations.snapshot(run.thread_id)).thread.state == "idle"


class Unreadable(SqlConversations):
    async def load_run(self, run_id: str) -> LoadedRun | None:
        raise StorageUnavailable("The database does not answer.")


async def test_without_its_history_no_model_is_asked(world: World) -> None:
    """An unreadable history is no empty one."""
    world.model.turns = [text("The code is 4711."), text("4711.")]
    await world.run("make a code")
    keeps = world.deps.stores.conversations
    run_id = await world.say("which code was it?")
    world.with_deps(conversations=Unreadable(world.database))
    with suppress(StorageUnavailable):
        await execute(run_id, world.deps)
    assert len(world.model.requests) == 1
    assert require(await keeps.run(run_id)).status in ("queued", "running")

    world.with_deps(conversations=keeps)
    await execute(run_id, world.deps)
    assert "4711" in str(world.model.requests[1].messages)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_model_sees_what_it_called_and_with_what(world: World, dialect: str) -> None:
    world.with_deps(dialect=DIALECTS[dialect]).model.turns = [two_calls(dialect), text("Final Answer: done")]
    await world.run("go")
    asked, *answers = world.model.requests[1].messages[2:]
    shown = json.dumps(asked)
    assert shown.count("echo") >= 2
    results = [str(one["content"]) for one in answers]
    assert ["echo a" in results[0], "echo b" in results[-1]] == [True, True]
    assert not any("arguments" in one for one in results)
    if dialect == "native":
        sent = [json.loads(one["function"]["arguments"]) for one in json.loads(shown)["tool_calls"]]
        assert sent == [{"text": "a"}, {"text": "b"}]
        ids = [one["id"] for one in json.loads(shown)["tool_calls"]]
        assert [one["tool_call_id"] for one in answers] == ids
        assert all("id" not in one for one in answers)


@pytest.mark.parametrize("output", ["", " \n", "\x00", "\ud83d"])
async def test_a_result_of_nothing_is_a_result(world: World, output: str) -> None:
    async def silent(params: EchoParams, context: ToolContext) -> str:
        return output

    tools = dict(world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], run=silent)
    world.with_deps(toolbox=ToolSet(tools)).model.turns = [calls(("echo", '{"text": "a"}')), text("done")]
    run_id = await world.run("go")
    (result,) = await world.tool_results(run_id)
    assert result["success"] is True
    assert isinstance(result["output"], str)
    assert (await world.read_run(run_id)).status == "completed"


async def test_no_turn_adds_words_that_nobody_said(world: World) -> None:
    """A standing "what next?" after each step is a third of the history, paid for in each call."""
    world.model.turns = [*(calls(("echo", json.dumps({"text": f"line {one}"}))) for one in range(60)), text("done")]
    await world.run("go")
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
