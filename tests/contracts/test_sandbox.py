"""What every sandbox provider promises: files, sessions, fences and life."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from core.domain.errors import LeaseLost, SandboxUnavailable, ToolError
from core.ports import Sandbox, SandboxProvider
from tests.fakes.sandbox_memory import MemorySandboxes, hanging, printing
from tests.support.all_sandboxes import PROVIDERS, clear, provider_of
from tests.support.sandboxes import ENDED, content, pieces, run
from tests.support.waiting import until

SCRIPTS = {
    "true": printing(""),
    "false": printing("", 1),
    "echo hello": printing("hello\n"),
    "echo started; sleep 1000": hanging,
}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[*PROVIDERS, "memory"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    if request.param == "memory":
        yield MemorySandboxes(SCRIPTS)
        return
    async with provider_of(request.param) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    """A sandbox that the tests of this module use one after another."""
    opened = await provider.open("shared", fence=1)
    yield opened
    if isinstance(provider, MemorySandboxes):
        await provider.destroy("shared")
    else:
        await clear(opened)


@pytest_asyncio.fixture(loop_scope="module")
async def thread_id(provider: SandboxProvider) -> AsyncIterator[str]:
    """A thread of this test alone, for tests that close or destroy its sandbox."""
    name = uuid4().hex
    yield name
    await provider.destroy(name)


async def test_a_command_tells_its_output_exit_code_and_folder(sandbox: Sandbox) -> None:
    done = await run(sandbox, "echo hello")
    assert (done.output, done.exit_code, done.folder) == ("hello\n", 0, "/workspace")
    assert (done.session, done.dropped_bytes, done.has_jobs, done.also_running) == ("main", 0, False, ())
    assert (await run(sandbox, "false")).exit_code == 1


async def test_a_command_over_its_time_goes_on_and_can_be_followed(sandbox: Sandbox) -> None:
    begun = await run(sandbox, "echo started; sleep 1000", seconds=0.5)
    assert (begun.output, begun.exit_code) == ("started\n", None)
    (session,) = await sandbox.shell.sessions()
    assert (session.name, session.command, session.is_running) == ("main", "echo started; sleep 1000", True)
    assert session.running_seconds > 0.2
    assert (await sandbox.shell.check("main")).exit_code is None


async def test_a_busy_session_takes_a_second_command_under_another_name(sandbox: Sandbox) -> None:
    await run(sandbox, "echo started; sleep 1000", seconds=0)
    second = await run(sandbox, "true")
    assert (second.session, second.also_running, second.exit_code) == ("main#2", ("main",), 0)
    assert (await sandbox.shell.check("main")).exit_code is None


async def test_an_interrupt_ends_every_command_and_keeps_the_sessions(sandbox: Sandbox) -> None:
    await run(sandbox, "echo started; sleep 1000", seconds=0.3)
    await run(sandbox, "echo started; sleep 1000", session="other", seconds=0.3)
    await sandbox.interrupt()
    assert (await sandbox.shell.check("main")).exit_code in ENDED
    assert [session.is_running for session in await sandbox.shell.sessions()] == [False, False]
    assert (await run(sandbox, "echo hello")).output == "hello\n"


async def test_a_terminated_session_is_gone(sandbox: Sandbox) -> None:
    await run(sandbox, "echo started; sleep 1000", seconds=0)
    await sandbox.shell.terminate("main")
    assert await sandbox.shell.sessions() == ()
    with pytest.raises(ToolError, match="no session"):
        await sandbox.shell.check("main")
    with pytest.raises(ToolError, match="no session"):
        await sandbox.shell.terminate("main")
    assert (await run(sandbox, "true")).exit_code == 0


async def test_a_missing_folder_is_told(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="no folder"):
        await sandbox.shell.execute("true", session="a", folder="nowhere", timeout_seconds=30)


async def test_a_cancelled_wait_leaves_the_command_to_interrupt(sandbox: Sandbox) -> None:
    waiting = asyncio.ensure_future(run(sandbox, "echo started; sleep 1000"))
    await until(lambda: sandbox.shell.sessions())
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (await sandbox.shell.check("main")).exit_code is None
    await sandbox.interrupt()
    assert (await sandbox.shell.check("main")).exit_code in ENDED


async def test_a_file_comes_back_as_written(sandbox: Sandbox) -> None:
    assert await sandbox.files.write("a/b/c.bin", pieces(b"\0\xff", b"", b"end")) == 5
    assert await content(sandbox, "a/b/c.bin") == b"\0\xffend"
    assert await content(sandbox, "/workspace/a/b/c.bin") == b"\0\xffend"
    part = [piece async for piece in sandbox.files.read("a/b/c.bin", offset=2, length=2)]
    assert b"".join(part) == b"en"
    assert await sandbox.files.write("a/b/c.bin", pieces()) == 0
    assert await content(sandbox, "a/b/c.bin") == b""


async def test_a_listing_is_sorted_and_relative(sandbox: Sandbox) -> None:
    assert await sandbox.files.list("") == ()
    for name in ("z.txt", "a/inner.txt", "m.txt"):
        await sandbox.files.write(name, pieces(b"12"))
    entries = await sandbox.files.list("")
    assert [(entry.path, entry.kind) for entry in entries] == [("a", "folder"), ("m.txt", "file"), ("z.txt", "file")]
    (inner,) = await sandbox.files.list("a")
    assert (inner.path, inner.size_bytes) == ("a/inner.txt", 2)
    assert [entry.path for entry in await sandbox.files.list("a/inner.txt")] == ["a/inner.txt"]


async def test_a_deleted_folder_takes_all_it_holds(sandbox: Sandbox) -> None:
    await sandbox.files.write("a/b/c.txt", pieces(b"x"))
    await sandbox.files.write("keep.txt", pieces(b"x"))
    await sandbox.files.delete("a")
    assert [entry.path for entry in await sandbox.files.list("")] == ["keep.txt"]
    await sandbox.files.delete("keep.txt")
    assert await sandbox.files.list("") == ()


@pytest.mark.parametrize("path", ["missing", "a/missing", "missing/deeper"])
async def test_what_is_not_there_is_told(sandbox: Sandbox, path: str) -> None:
    await sandbox.files.write("a/b", pieces(b"x"))
    with pytest.raises(ToolError, match="no such file"):
        await content(sandbox, path)
    with pytest.raises(ToolError, match="no such file"):
        await sandbox.files.list(path)
    with pytest.raises(ToolError, match="no such file"):
        await sandbox.files.delete(path)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "../shared/workspace/x"])
async def test_a_path_that_leads_out_is_refused(sandbox: Sandbox, path: str) -> None:
    await sandbox.files.write("a/b", pieces(b"x"))
    with pytest.raises(ToolError, match="leads out of"):
        await content(sandbox, path)
    with pytest.raises(ToolError, match="leads out of"):
        await sandbox.files.write(path, pieces(b"x"))
    with pytest.raises(ToolError, match="leads out of"):
        await sandbox.files.list(path)
    with pytest.raises(ToolError, match="leads out of"):
        await sandbox.files.delete(path)


async def test_the_same_thread_gets_the_same_machine(provider: SandboxProvider, thread_id: str) -> None:
    first, second = await asyncio.gather(provider.open(thread_id, fence=1), provider.open(thread_id, fence=1))
    await run(first, "true", session="shared")
    assert [session.name for session in await second.shell.sessions()] == ["shared"]
    other = await provider.open(f"{thread_id}2", fence=1)
    assert await other.shell.sessions() == ()
    await provider.destroy(f"{thread_id}2")


async def test_a_higher_fence_ends_the_commands_of_the_lower(provider: SandboxProvider, thread_id: str) -> None:
    old = await provider.open(thread_id, fence=1)
    await old.files.write("kept", pieces(b"x"))
    await run(old, "echo started; sleep 1000", seconds=0.3)
    new = await provider.open(thread_id, fence=2)
    assert (await new.shell.check("main")).exit_code in ENDED
    with pytest.raises(LeaseLost):
        await run(old, "true")
    assert await content(old, "kept") == b"x"
    assert (await run(new, "echo hello")).output == "hello\n"


async def test_a_command_in_the_background_outlives_its_run(provider: SandboxProvider, thread_id: str) -> None:
    old = await provider.open(thread_id, fence=1)
    for session in ("server", "waited-for"):
        await run(old, "echo started; sleep 1000", session=session, seconds=0.3)
    await old.shell.keep_running("server")
    new = await provider.open(thread_id, fence=2)
    assert (await new.shell.check("server")).exit_code is None
    assert (await new.shell.check("waited-for")).exit_code in ENDED
    with pytest.raises(LeaseLost):
        await old.shell.keep_running("server")
    await new.shell.keep_running("unknown")
    await new.interrupt()
    assert (await new.shell.check("server")).exit_code in ENDED
    await run(new, "echo started; sleep 1000", session="server", seconds=0.3)
    newest = await provider.open(thread_id, fence=3)
    assert (await newest.shell.check("server")).exit_code in ENDED


async def test_a_run_that_lost_the_sandbox_reaches_no_command_of_the_newer(
    provider: SandboxProvider, thread_id: str
) -> None:
    old = await provider.open(thread_id, fence=1)
    new = await provider.open(thread_id, fence=2)
    await run(new, "echo started; sleep 1000", seconds=0.3)
    for reach in (lambda: old.shell.type_text("main", "exit\n"), lambda: old.shell.terminate("main"), old.interrupt):
        with pytest.raises(LeaseLost):
            await reach()
    assert (await new.shell.check("main")).exit_code is None
    await new.interrupt()
    assert (await new.shell.check("main")).exit_code in ENDED


async def test_a_run_that_lost_the_sandbox_changes_no_files(provider: SandboxProvider, thread_id: str) -> None:
    old = await provider.open(thread_id, fence=1)
    await old.files.write("report", pieces(b"draft"))
    new_opened = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"old"
        await new_opened.wait()

    late = asyncio.ensure_future(old.files.write("report", slow()))
    await asyncio.sleep(0.1)
    new = await provider.open(thread_id, fence=2)
    await new.files.write("report", pieces(b"new"))
    new_opened.set()
    with pytest.raises(LeaseLost):
        await late
    with pytest.raises(LeaseLost):
        await old.files.write("report", pieces(b"old"))
    with pytest.raises(LeaseLost):
        await old.files.delete("report")
    assert await content(new, "report") == b"new"
    assert await content(old, "report") == b"new"


async def test_a_lower_fence_changes_nothing(provider: SandboxProvider, thread_id: str) -> None:
    current = await provider.open(thread_id, fence=5)
    await run(current, "echo started; sleep 1000", seconds=0)
    await provider.open(thread_id, fence=0)
    assert (await current.shell.check("main")).exit_code is None


async def test_a_closed_sandbox_is_lost_and_its_files_are_kept(provider: SandboxProvider, thread_id: str) -> None:
    first = await provider.open(thread_id, fence=1)
    await first.files.write("kept", pieces(b"x"))
    waiting = asyncio.ensure_future(run(first, "echo started; sleep 1000", session="w", seconds=30))
    await until(lambda: first.shell.sessions())
    await first.close()
    with pytest.raises(SandboxUnavailable):
        await waiting
    with pytest.raises(SandboxUnavailable):
        await run(first, "true")
    second = await provider.open(thread_id, fence=2)
    assert await content(second, "kept") == b"x"
    assert await second.shell.sessions() == ()


async def test_a_destroyed_workspace_is_gone(provider: SandboxProvider, thread_id: str) -> None:
    first = await provider.open(thread_id, fence=1)
    await first.files.write("a/b", pieces(b"x"))
    await provider.destroy(thread_id)
    await provider.destroy(thread_id)
    await provider.destroy("never-seen")
    second = await provider.open(thread_id, fence=2)
    assert await second.files.list("") == ()


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "x" * 200, "a\0b"])
async def test_a_thread_id_that_is_no_name_is_refused(provider: SandboxProvider, name: str) -> None:
    with pytest.raises(SandboxUnavailable):
        await provider.open(name, fence=1)
