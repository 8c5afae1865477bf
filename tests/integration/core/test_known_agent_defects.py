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
from core.domain.messages import Message, ToolCall
from core.domain.threads import IncomingFile
from core.domain.wire_format import suna_objects
from core.loop.calls import CallOutcome
from core.loop.repetition import WARNING, RepetitionDetector
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


def outcome(name: str = "echo", argument: str = "a", output: str = "b") -> CallOutcome:
    call = ToolCall(name=name, arguments={"text": argument}, call_id="made anew each time")
    return CallOutcome(call=call, outcome="completed", result={"success": True, "output": output, "error": None})


def ended_after(turns: list[tuple[str, list[CallOutcome]]]) -> int | None:
    """The number of the turn after which the watch gives up, from 1."""
    watch = RepetitionDetector()
    for number, (words, outcomes) in enumerate(turns, start=1):
        watch.notes(())
        if watch.is_stuck_after(words, outcomes):
            return number
    return None


async def test_twenty_identical_calls_are_caught_although_the_words_differ(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}'), said=f"Attempt {number}.") for number in range(20)]
    run_id = await world.run("go")
    assert world.bench.said == ["a"] * 4
    last = await world.read_end(run_id)
    assert (last.status, last.can_continue) == ("completed", True)
    assert "again and again" in last.message


async def test_the_warning_is_told_once(world: World) -> None:
    world.model.turns = [
        *(calls(("echo", '{"text": "a"}')) for _ in range(3)),
        calls(("echo", '{"text": "b"}')),
        text("done"),
    ]
    run_id = await world.run("go")
    warned = [WARNING in tail for tail in world.model.tails]
    assert warned == [False, False, False, True, False]
    assert str(world.model.requests[-1].messages).count("Note from the system") == 1
    assert not [one for one in await world.history(run_id) if one.type == "user"][1:]


async def test_an_answer_cut_off_again_and_again_with_the_same_words_ends(world: World) -> None:
    world.model.turns = [text("the same words", finish="length") for _ in range(20)]
    run_id = await world.run("go")
    assert len(world.model.requests) == 4
    assert (await world.read_end(run_id)).can_continue


def test_a_circle_of_several_steps_is_seen() -> None:
    circle = [("", [outcome(argument=one)]) for one in "abcabcabc"]
    assert ended_after(circle) == 6


def test_a_plan_written_again_and_again_is_nothing_new() -> None:
    def written(text: str, path: str = "todo.md") -> CallOutcome:
        call = ToolCall(name="create_file", arguments={"file_path": path, "file_contents": text}, call_id="c")
        return CallOutcome(call=call, outcome="completed", result={"success": True, "output": text, "error": None})

    plans = [("", [written(str(one))]) for one in range(9)]
    assert ended_after(plans) == 4
    assert ended_after([turn for one in range(9) for turn in (plans[one], ("", [outcome(argument=str(one))]))]) is None
    assert ended_after([("", [*turn[1], outcome(argument=str(one))]) for one, turn in enumerate(plans)]) is None
    assert ended_after([("", [written(str(one), "book.md")]) for one in range(9)]) is None


@pytest.mark.parametrize(
    "turns",
    [
        [("", [outcome(output=str(one))]) for one in range(50)],
        [("Next page.", [outcome(argument=str(one))]) for one in range(50)],
        [("", [outcome(), outcome(argument=str(one // 3))]) for one in range(30)],
        [("", [outcome(argument=str(one))]) for one in range(10)] * 2,
    ],
    ids=["other results", "other arguments", "one new call among old ones", "what was read long ago"],
)
def test_what_brings_something_new_is_no_circle(turns: list[tuple[str, list[CallOutcome]]]) -> None:
    assert ended_after(turns) is None


@pytest.mark.parametrize("between", [[], [outcome("execute_command", "sleep 1", "[session b, in /: exit code 0]")]])
def test_waiting_for_a_command_that_runs_is_no_circle(between: list[CallOutcome]) -> None:
    running = outcome("check_command_output", output="[session a, in /workspace: still running]")
    ended = outcome("check_command_output", output="[session a, in /workspace: exit code 0]")
    turns = [("", [one]) for one in [*between, running] * 40]
    assert ended_after(turns) is None
    assert ended_after([*turns, *([("", [ended])] * 5)]) == len(turns) + 4


def test_a_persons_words_clear_the_count() -> None:
    watch = RepetitionDetector()
    said = Message(type="user", content={"role": "user"}, is_llm_message=True, thread_id="t")
    for _ in range(3):
        assert not watch.is_stuck_after("", [outcome()])
    assert watch.notes((said,)) == ()
    assert not watch.is_stuck_after("", [outcome()])
