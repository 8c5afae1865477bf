"""The shell tools on real sandboxes: execute_command, check_command_output, terminate_command, list_commands."""

import asyncio
import re
import time

import pytest

from core.context.tokens import count_text
from core.loop.calls import RESULT_TOKENS_MAX
from tests.integration.core.tools.conftest import Bench
from tests.integration.core.tools.shared_bench import IN_MODULE_LOOP
from tests.integration.core.tools.shared_bench import bench as bench
from tests.integration.core.tools.shared_bench import shared_sandbox as shared_sandbox

pytestmark = IN_MODULE_LOOP

SECONDS = 30.0


async def run(bench: Bench, command: str, session: str = "main") -> str:
    outcome = await bench.call("execute_command", command=command, session_name=session, blocking=True)
    return str(outcome.result["output"])


async def until_said(bench: Bench, session: str, words: str) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        shown = await bench.output("check_command_output", session_name=session)
        if words in shown:
            return shown
        await asyncio.sleep(0.02)
    raise AssertionError(f"the command did not say {words!r}")


@pytest.mark.parametrize("code", [0, 1, 2, 77, 126, 255])
async def test_a_blocking_command_tells_its_exact_exit_code(bench: Bench, code: int) -> None:
    outcome = await bench.call("execute_command", command=f"echo out; (exit {code})", blocking=True)
    assert outcome.result["output"] == f"out\n[session default, in /workspace: exit code {code}]"
    assert outcome.result["success"] is (code == 0)
    assert outcome.outcome == ("completed" if code == 0 else "failed")


async def test_a_command_is_not_expanded_by_another_shell(bench: Bench) -> None:
    command = """x='$HOME `id` !!'; printf '%s|' "$x" "a\\"b"; echo"""
    assert await run(bench, command) == ("""$HOME `id` !!|a"b|\n[session main, in /workspace: exit code 0]""")


async def test_an_output_that_repeats_the_command_is_not_taken_for_its_end(bench: Bench) -> None:
    shown = await run(bench, "set -x; sleep 0.2; echo 'exit code 9'; set +x; (exit 3)")
    assert shown.endswith("exit code 3]")


async def test_a_long_result_is_cut_and_saved(bench: Bench) -> None:
    shown = await bench.output("execute_command", command="seq 20000; echo the end")
    assert count_text(shown) <= RESULT_TOKENS_MAX
    assert shown.startswith("1\n2\n3\n")
    assert "the end\n[session default" in shown
    found = re.search(r"all of it is in (\.results/\S+), for grep", shown)
    assert found
    whole = await bench.get(found[1])
    assert whole.decode().splitlines()[:20_000] == [str(n) for n in range(1, 20_001)]


async def test_the_end_of_a_background_command_is_seen_later(bench: Bench) -> None:
    await bench.output("execute_command", command="sleep 0.2; echo done; (exit 4)", session_name="job", timeout=0)
    assert await until_said(bench, "job", "exit code") == "done\n[session job, in /workspace: exit code 4]"


async def test_a_command_over_its_time_gives_what_it_has_and_goes_on(bench: Bench) -> None:
    shown = await bench.output(
        "execute_command", command="echo first; read line; echo got", session_name="main", blocking=True, timeout=1
    )
    assert shown.startswith("first\n[session main, in /workspace: still running after 1 s and going on")
    ((name, _, is_running),) = await bench.sessions()
    assert (name, is_running) == ("main", True)


async def test_a_session_keeps_folder_and_variables(bench: Bench) -> None:
    await run(bench, "mkdir -p deep/er && cd deep/er && export WORD=kept && f() { echo fun; }")
    assert await run(bench, "echo $WORD; f") == ("kept\nfun\n[session main, in /workspace/deep/er: exit code 0]")
    assert "kept" not in await run(bench, "echo $WORD", session="other")


async def test_a_wrong_folder_runs_nothing(bench: Bench) -> None:
    for folder, reason in (("nowhere", "no folder"), ("/etc", "outside"), ("../x", "climbs")):
        error = await bench.error("execute_command", command="touch ran", folder=folder, blocking=True)
        assert reason in error
    assert await bench.output("list_files") == "[the folder is empty]"


async def test_a_busy_session_takes_another_command_in_the_same_folder_and_says_what_runs(bench: Bench) -> None:
    await run(bench, "mkdir a; cd a; A=1")
    await bench.output("execute_command", command="sleep 60", session_name="main", timeout=0)
    assert await run(bench, "echo $A") == (
        "1\n[of the same session these still run, each with a name for check_command_output: main]\n"
        "[session main#2, in /workspace/a: exit code 0]"
    )


async def test_checking_can_kill_the_session(bench: Bench) -> None:
    await bench.output("execute_command", command="echo begun; sleep 60", session_name="main", timeout=0)
    shown = await bench.output("check_command_output", session_name="main", kill_session=True)
    assert shown.endswith("[session main, in /workspace: the session was killed]")
    assert await bench.sessions() == []


async def test_progress_bars_cost_one_line(bench: Bench) -> None:
    shown = await run(bench, "for i in $(seq 2000); do printf '\\r%d of 2000' $i; done; echo")
    first, note, last = shown.split("\n")
    assert (first, last) == ("2000 of 2000", "[session main, in /workspace: exit code 0]")
    path = note.removeprefix("[lines that were overwritten are in ").removesuffix("]")
    assert (await run(bench, f"tr '\\r' '\\n' <{path} | wc -l")).startswith("2001\n")


async def test_what_a_command_left_running_is_told_with_its_output(bench: Bench) -> None:
    first, last = (await run(bench, "sleep 60 &")).split("\n")
    assert last == "[session main, in /workspace: exit code 0]"
    assert first == "[the command has left something running]"
    assert "[what the command has left running prints to /tmp/" in await run(bench, "echo on; sleep 60 &")


async def test_a_check_waits_for_the_end_of_the_command(bench: Bench) -> None:
    await bench.output("execute_command", command="echo go; read x; sleep 1.5; echo $x", session_name="main", timeout=0)
    waiting = asyncio.ensure_future(bench.output("check_command_output", session_name="main", wait_seconds=600))
    await asyncio.sleep(0.1)
    await bench.output("check_command_output", session_name="main", input="done")
    assert await waiting == "go\ndone\n[session main, in /workspace: exit code 0]"
    arguments = {"session_name": "main", "wait_seconds": 600, "until": "never printed"}
    assert (await bench.output("check_command_output", **arguments)).endswith("exit code 0]")


@pytest.mark.parametrize("tool", ["check_command_output", "terminate_command"])
async def test_an_unknown_session_is_told_with_the_known_ones(bench: Bench, tool: str) -> None:
    await run(bench, "true", session="build")
    error = await bench.error(tool, session_name="nobody")
    assert error == "There is no session 'nobody'. Sessions: build."


async def test_a_line_that_the_terminal_would_cut_is_refused(bench: Bench) -> None:
    error = await bench.error("check_command_output", session_name="main", input="short\n" + "€" * 1366)
    assert "at most 4095 bytes" in error
