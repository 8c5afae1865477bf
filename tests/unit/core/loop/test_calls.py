"""The order of the calls of one answer: what it leaves behind is what its order says."""

import asyncio
import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect, format_call
from core.domain.json import JsonObject
from core.domain.messages import ToolCall
from core.loop.calls import build_outcome, execute_call, failed_outcome, must_be_seen_by_model
from core.loop.run_context import LoopPolicy
from core.ports import Sandbox
from core.tasks import StopSwitch
from core.tools.browser.navigation import browser_screenshot
from core.tools.catalogue import build_tool_set
from core.tools.shell import execute_command
from core.tools.tool import PreparedCall, Strategy, ToolContext, ToolOutput, ToolSet, must_wait_for, prepare_call
from core.tools.workspace.file_changes import create_file, delete_file, full_file_rewrite, str_replace
from core.tools.workspace.reading import read_file
from tests.fakes.memory_run import MemoryRun
from tests.fakes.sandbox_memory import MemorySandbox, MemorySandboxes, Script, Terminal
from tests.fakes.streamed_model import StreamedModel, calls, pieces, text

TOOLS = [create_file, delete_file, full_file_rewrite, read_file, str_replace, execute_command]
PATHS = ("a.txt", "b.txt")
BROWSER_TOOLS = ToolSet({browser_screenshot.name: browser_screenshot})
Call = tuple[str, JsonObject]


async def append_line(terminal: Terminal) -> int:
    """Reads a file, is interrupted, and writes it with one line more, as a careless program would."""
    before = terminal.files.get("a.txt", b"")
    await asyncio.sleep(0.001)
    terminal.files["a.txt"] = before + b"1 from the shell\n"
    return 0


DIALECTS = st.sampled_from([NativeDialect(), XmlDialect(), ReactDialect()])


def written(answered: list[Call], dialect: Dialect) -> str:
    if dialect.name == "react":
        return "\n".join(f"Action: {name}\nAction Input: {json.dumps(given)}" for name, given in answered)
    return "\n".join(format_call(*one) for one in answered)


async def one_answer(
    answered: list[Call], strategy: Strategy, dialect: Dialect
) -> tuple[dict[str, bytes], list[JsonObject]]:
    """Runs the calls as one answer of a model. The command `stop` stops the run. Returns the files and the results in
    call order."""
    switch = StopSwitch()

    async def stop(_terminal: Terminal) -> int:
        switch.turn_on()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    machine, sandbox = await open_machine({"stop": stop})
    played = calls(*((name, json.dumps(arguments)) for name, arguments in answered))
    if dialect.name != "native":
        played = text(*pieces(written(answered, dialect)))
    run = MemoryRun(
        StreamedModel([played, text("done")]),
        tools=TOOLS,
        dialect=dialect,
        sandbox=sandbox,
        policy=LoopPolicy(strategy=strategy),
        switch=switch,
    )
    await run.start("go")
    told = [str(one.content["content"]) for one in run.log.messages if one.type == "tool"]
    return machine.content, [json.loads(one)["tool_execution"]["result"] for one in told]


async def one_by_one(answered: list[Call]) -> tuple[dict[str, bytes], list[JsonObject]]:
    machine, sandbox = await open_machine()
    toolbox = ToolSet({tool.name: tool for tool in TOOLS})

    async def opened() -> Sandbox:
        return sandbox

    context = ToolContext(thread_id="thread", run_id="run", sandbox=opened)
    results: list[JsonObject] = []
    for name, arguments in answered:
        call = ToolCall(name=name, arguments=arguments, call_id="c")
        prepared = prepare_call(name, arguments, toolbox)
        results.append((await execute_call(call, prepared, context)).result)
    return machine.content, results


async def open_machine(scripts: dict[str, Script] | None = None) -> tuple[MemorySandbox, Sandbox]:
    provider = MemorySandboxes({"append": append_line, **(scripts or {})})
    sandbox = await provider.open("thread", fence=1)
    return provider.machines["thread"], sandbox


paths = st.sampled_from(PATHS)
lines = st.sampled_from(["1", "2", "11", ""])
any_call = st.one_of(
    st.builds(lambda p, t: ("create_file", {"file_path": p, "file_contents": t}), paths, lines),
    st.builds(lambda p, t: ("full_file_rewrite", {"file_path": p, "file_contents": t}), paths, lines),
    st.builds(
        lambda p, a, b: ("str_replace", {"file_path": p, "old_str": a, "new_str": b}),
        paths, st.sampled_from(["1", "2", "11"]), lines,
    ),
    st.builds(lambda p: ("delete_file", {"file_path": p}), paths),
    st.builds(lambda p: ("read_file", {"file_path": p}), paths),
    st.just(("execute_command", {"command": "append", "blocking": True})),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(any_call, min_size=2, max_size=8), st.sampled_from(get_args(Strategy)), DIALECTS)
def test_an_answer_leaves_the_workspace_as_if_its_calls_had_run_in_turn(
    answered: list[Call], strategy: Strategy, dialect: Dialect
) -> None:
    at_once = asyncio.run(one_answer(answered, strategy, dialect))
    assert at_once == asyncio.run(one_by_one(answered))


stop_call: Call = ("execute_command", {"command": "stop", "blocking": True})


@settings(max_examples=60, deadline=None)
@given(st.lists(any_call, max_size=5), st.lists(any_call, max_size=5), st.sampled_from(get_args(Strategy)), DIALECTS)
def test_a_stop_leaves_what_the_calls_with_results_did_and_nothing_else(
    before: list[Call], after: list[Call], strategy: Strategy, dialect: Dialect
) -> None:
    answered = [*before, stop_call, *after]
    content, results = asyncio.run(one_answer(answered, strategy, dialect))
    is_cut = ["Stopped by a person" in str(one["error"]) for one in results]
    assert is_cut[len(before)]
    done = [at for at, cut in enumerate(is_cut) if not cut]
    assert done[: len(before)] == list(range(len(before)))
    whole, told = asyncio.run(one_by_one([answered[at] for at in done]))
    assert content == whole
    assert [results[at] for at in done] == told


def prepared(name: str, **arguments: JsonValue) -> PreparedCall:
    return prepare_call(name, arguments, build_tool_set())


def overlapping(strategy: Strategy, earlier: PreparedCall, later: PreparedCall) -> bool:
    return not must_wait_for(earlier, later, strategy)


def test_only_the_parallel_strategy_lets_calls_on_different_things_overlap() -> None:
    one, other = prepared("read_file", file_path="a.txt"), prepared("list_files")
    edit = prepared("create_file", file_path="/workspace/src/a.py", file_contents="")
    unrelated = prepared("delete_file", file_path="docs")
    assert overlapping("ordered", one, other)
    assert not overlapping("sequential", one, other)
    assert not overlapping("ordered", edit, unrelated)
    assert overlapping("parallel", edit, unrelated)
    assert not overlapping("parallel", edit, prepared("delete_file", file_path="src"))


def test_a_screenshot_is_written_before_anything_looks_at_its_file() -> None:
    taken = prepare_call("browser_screenshot", {"file_path": "page.png"}, BROWSER_TOOLS)
    seen = prepared("see_image", file_path="page.png")
    assert not overlapping("ordered", taken, seen)
    assert not overlapping("parallel", taken, seen)


def test_commands_overlap_in_different_sessions_only_and_never_with_files() -> None:
    build = prepared("execute_command", command="make", session_name="build")
    edit = prepared("create_file", file_path="a.py", file_contents="")
    assert overlapping("parallel", build, prepared("execute_command", command="ls"))
    assert not overlapping("parallel", build, prepared("check_command_output", session_name="build"))
    assert not overlapping("parallel", build, prepared("check_command_output", session_name="build#2"))
    assert not overlapping("parallel", edit, build)
    assert not overlapping("parallel", build, prepared("complete"))


@pytest.mark.parametrize(
    ("name", "output", "needs"),
    [
        ("execute_command", "ok\n[session main, in /workspace: exit code 0]", False),
        ("execute_command", "no\n[session main, in /workspace: exit code 1]", True),
        ("execute_command", "...\n[session main, in /workspace: still running]", True),
        ("python_execute", "Traceback\n[exit code 1]", True),
        ("read_file", "a log that ends with exit code 1]", False),
    ],
)
def test_what_the_model_must_see_before_it_ends(name: str, output: str, *, needs: bool) -> None:
    call = ToolCall(name=name, arguments={}, call_id="c")
    assert must_be_seen_by_model(build_outcome(call, ToolOutput(output=output))) == needs
    assert must_be_seen_by_model(failed_outcome(call, "it broke"))
