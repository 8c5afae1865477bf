"""Commands left in the background: the model is told once when one ends or is gone, without asking."""

import asyncio
import json

import pytest

from core.domain.events import AgentEvent, CommandEnded, ToolFinished, ToolProgressed
from core.domain.messages import Message
from core.loop import calls as calls_module
from core.tools import shell as shell_module
from core.tools.shell import check_command_output, execute_command, exit_code_of, terminate_command
from tests.fakes.memory_run import MemoryRun
from tests.fakes.sandbox_memory import MemorySandboxes, Terminal
from tests.fakes.streamed_model import Played, StreamedModel, calls, text

TOOLS = [execute_command, check_command_output, terminate_command]


class World:
    """A thread with a sandbox in which `build` runs until the command `finish` lets it end."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.sandboxes = MemorySandboxes({"build": self.build, "finish": self.finish})

    async def build(self, terminal: Terminal) -> int:
        await self.gate.wait()
        terminal.print("it is built\n")
        return 3

    async def finish(self, terminal: Terminal) -> int:
        self.gate.set()
        await asyncio.sleep(0.01)
        return 0

    async def run(self, *turns: Played, history: tuple[Message, ...] = ()) -> MemoryRun:
        sandbox = await self.sandboxes.open("thread", fence=1)
        run = MemoryRun(StreamedModel([*turns]), tools=TOOLS, sandbox=sandbox, history=history)
        await run.start("go")
        return run


def shell(command: str, session: str = "main", timeout: int = 0) -> Played:
    arguments = {"command": command, "session_name": session, "timeout": timeout}
    return calls(("execute_command", json.dumps(arguments)))


def notes(run: MemoryRun) -> list[str]:
    """The note in the last message of each request, or an empty text."""
    told = [str(json.loads(tail)["content"]) for tail in run.model.tails]
    return [one.partition("[Note from the system")[2] for one in told]


async def test_the_end_of_a_background_command_is_told_once() -> None:
    turns = [shell("build"), shell("finish", "other", 1), shell("finish", "third", 1), text("ok")]
    run = await World().run(*turns)
    assert [bool(one) for one in notes(run)] == [False, False, True, False]
    told = notes(run)[2]
    assert "`build` in the background of the session main has ended with exit code 3" in told
    assert "it is built" in told


async def test_a_command_is_waited_for_and_then_becomes_a_background_job_of_which_the_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_module, "WAIT_SECONDS", 0.3)
    world = World()

    async def short(terminal: Terminal) -> int:
        await asyncio.sleep(0.02)
        terminal.print("short and done\n")
        return 0

    world.sandboxes = MemorySandboxes({"short": short, "build": world.build, "finish": world.finish})
    plain = [calls(("execute_command", json.dumps({"command": one}))) for one in ("short", "build")]
    run = await world.run(*plain, shell("finish", "other", 1), shell("short", "third"), text("ok"))
    first, second = [str(one.content) for one in run.log.messages if one.type == "tool"][:2]
    assert "short and done" in first
    assert "exit code 0" in first
    assert "still running after 0.3 s and going on in the background" in second
    assert [bool(one) for one in notes(run)] == [False, False, False, True, False]
    assert "`build` in the background" in notes(run)[3]


async def test_an_end_that_the_model_has_seen_itself_is_not_told_again() -> None:
    look = calls(("check_command_output", '{"session_name": "main"}'))
    together = calls(
        ("execute_command", '{"command": "finish", "session_name": "other"}'),
        ("check_command_output", '{"session_name": "main"}'),
    )
    run = await World().run(shell("build"), look, together, text("ok"))
    assert not any(notes(run))


async def test_a_program_that_was_stopped_is_told_when_the_sandbox_is_used_again() -> None:
    world = World()
    first = await world.run(shell("build"), text("it builds"))
    await world.sandboxes.machines["thread"].stop()
    history = tuple(first.log.messages)
    second = await world.run(shell("finish", "other", 1), text("ok"), history=history)
    assert "left in the background earlier" in notes(second)[0]
    assert "`build`" in notes(second)[0]
    assert "`build` in the background of the session main no longer runs" in notes(second)[1]


async def test_a_run_without_a_shell_does_not_start_the_sandbox() -> None:
    world = World()
    first = await world.run(shell("build"), text("it builds"))
    second = MemoryRun(StreamedModel([text("ok")]), history=tuple(first.log.messages))
    await second.start("thanks")
    assert "left in the background earlier" in notes(second)[0]


async def test_people_are_told_how_a_background_command_ended() -> None:
    turns = [shell("build"), shell("finish", "other", 1), shell("finish", "third", 1), text("ok")]
    run = await World().run(*turns)
    told = [one for one in run.log.events if isinstance(one, CommandEnded)]
    assert told == [CommandEnded(session="main", exit_code=3)]
    ends = [one for one in run.log.events if isinstance(one, ToolFinished)]
    assert [(one.session, one.is_running, one.exit_code) for one in ends] == [
        ("main", True, None),
        ("other", False, 0),
        ("third", False, 0),
    ]


async def test_a_long_command_tells_how_long_it_runs_and_what_it_printed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "PROGRESS_AFTER_SECONDS", 0.03)
    monkeypatch.setattr(calls_module, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(shell_module, "LOOK_SECONDS", 0.01)
    world = World()

    async def chatty(terminal: Terminal) -> int:
        terminal.print("one\ntwo\x1b[31m \u202ered\n")
        while not any(isinstance(one, ToolProgressed) and one.line for one in log()):
            await asyncio.sleep(0.01)
        return 1

    def log() -> list[AgentEvent]:
        return runs[0].log.events

    world.sandboxes = MemorySandboxes({"chatty": chatty})
    sandbox = await world.sandboxes.open("thread", fence=1)
    model = StreamedModel([shell("chatty", timeout=30), text("ok")])
    runs = [MemoryRun(model, tools=TOOLS, sandbox=sandbox)]
    await runs[0].start("go")
    progress = [one for one in log() if isinstance(one, ToolProgressed)]
    assert progress[-1].line == "two[31m red"
    (end,) = [one for one in log() if isinstance(one, ToolFinished)]
    assert (end.outcome, end.exit_code, end.is_running) == ("failed", 1, False)
    assert log().index(end) > log().index(progress[-1])


@pytest.mark.parametrize(
    ("name", "output", "code"),
    [
        ("execute_command", "x\n[session a, in /workspace: exit code 2]", 2),
        ("python_execute", "x\n[exit code 1]", 1),
        ("check_command_output", "[session a, in /: exit code 137; the session was killed]", 137),
        ("execute_command", "exit code 5]\n[session a, in /: still running]", None),
        ("mcp_x_y", "[exit code 1]", None),
        ("execute_command", None, None),
    ],
)
def test_the_exit_code_is_read_from_the_last_line(name: str, output: str | None, code: int | None) -> None:
    assert exit_code_of(name, {"output": output}) == code
