"""When a command of a session begins and ends: interrupts before it, text that nobody reads, shells in the shell."""

import pytest

from core.domain.errors import ToolError
from core.ports import Sandbox
from tests.integration.sandbox.providers import ENDED, content, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW_PROMPT = 'PROMPT_COMMAND="$PROMPT_COMMAND; sleep 1"'  # between the mark and the next read


async def test_what_is_interrupted_before_it_has_begun_never_begins(sandbox: Sandbox) -> None:
    await run(sandbox, SLOW_PROMPT)
    await run(sandbox, "touch begun; sleep 1000", seconds=0)
    await sandbox.interrupt()
    assert (await sandbox.shell.check("main")).exit_code in ENDED
    assert (await run(sandbox, "sleep 0.5; ls", session="another")).output == ""
    done = await run(sandbox, "sleep 0.3; echo on")
    assert (done.output, done.exit_code) == ("on\n", 0)


async def test_a_session_that_was_interrupted_while_it_started_is_kept(sandbox: Sandbox) -> None:
    await run(sandbox, "sleep 1000", session="fresh", seconds=0)
    await sandbox.interrupt()
    stopped = await sandbox.shell.check("fresh")
    assert stopped.exit_code in ENDED
    assert "has ended" not in stopped.output
    assert (await run(sandbox, "echo on", session="fresh")).output == "on\n"


async def test_text_that_nobody_read_is_not_taken_for_a_command(sandbox: Sandbox) -> None:
    await run(sandbox, SLOW_PROMPT)
    await run(sandbox, "sleep 0.3", seconds=0)
    await sandbox.shell.type_text("main", "touch surprise\n")
    assert (await sandbox.shell.check("main", timeout_seconds=30)).exit_code == 0
    done = await run(sandbox, "sleep 0.3; ls; echo on")
    assert (done.output, done.exit_code) == ("on\n", 0)


async def test_a_shell_in_the_shell_is_entered_and_left(sandbox: Sandbox) -> None:
    outer = (await run(sandbox, "echo $BASHPID")).output
    assert (await run(sandbox, "bash --norc")).exit_code == 0
    assert (await run(sandbox, "echo $BASHPID")).output != outer
    assert (await run(sandbox, "exit 3")).exit_code == 3
    assert (await run(sandbox, "echo $BASHPID")).output == outer


@pytest.mark.parametrize("before", ["false", "set -u; ! true"])
async def test_the_last_exit_code_is_there_for_the_next_command(sandbox: Sandbox, before: str) -> None:
    assert (await run(sandbox, before)).exit_code == 1
    assert (await run(sandbox, "echo $?")).output == "1\n"


async def test_a_shell_in_the_shell_is_interrupted_like_the_shell(sandbox: Sandbox) -> None:
    await run(sandbox, "bash --norc")
    inner = (await run(sandbox, "echo $BASHPID")).output
    for command in ("while :; do :; done", "sleep 1000"):
        await run(sandbox, command, seconds=0.3)
        await sandbox.interrupt()
        assert (await sandbox.shell.check("main")).exit_code in ENDED
    assert (await run(sandbox, "echo $BASHPID")).output == inner


async def test_long_input_is_typed_whole(sandbox: Sandbox) -> None:
    lines = "".join(f"{number:099}\n" for number in range(3000))
    await run(sandbox, "sleep 0.3; head -c 300000 >typed", seconds=0)
    await sandbox.shell.type_text("main", lines)
    assert (await sandbox.shell.check("main", timeout_seconds=30)).exit_code == 0
    assert await content(sandbox, "typed") == lines.encode()


async def test_input_that_no_program_reads_is_reported_with_what_was_taken(sandbox: Sandbox) -> None:
    await run(sandbox, "sleep 60", seconds=0)
    with pytest.raises(ToolError, match=r"took only [1-9]\d* of 300000 bytes"):
        await sandbox.shell.type_text("main", f"{'x' * 99}\n" * 3000)
    await sandbox.interrupt()
    assert (await run(sandbox, "echo on")).output == "on\n"
