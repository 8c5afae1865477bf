"""The life of local jails: started once, replaced when dead, archived, restored, gone with their host."""

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.domain.errors import SandboxUnavailable
from core.tasks import spawn
from sandbox.limits import SandboxLimits
from sandbox.local import jail_requirements, lifecycle, shared_access
from sandbox.local.process_table import process_tree
from sandbox.local.provider import LocalSandboxProvider
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.integration.sandbox.controlled_clock import DEFAULT_LIFECYCLE, Day, a_day
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking
from tests.support.closing import close_after
from tests.support.sandboxes import content, local_jails, pieces, reachable_folder, run
from tests.support.waiting import until

HOST = """
import asyncio, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from sandbox.local.provider import LocalSandboxProvider

async def main():
    provider = LocalSandboxProvider(Path({folder!r}))
    result = await provider.probe()
    print("probe", result.ok, result.reason, result.remedy, flush=True)
    if not result.ok:
        return
    sandbox = await provider.open("thread", fence=1)
    done = await sandbox.shell.execute(
        "echo kept >file; id -u; setsid sleep 54321 & sleep 54321", session="a", folder=None, timeout_seconds=0.5
    )
    print("said", done.output.split()[0], flush=True)
    print("pid", provider._jails()[0].pid, flush=True)
    if {waits}:
        await asyncio.Event().wait()
    await provider.close()

asyncio.run(main())
"""


def host(folder: Path, *, waits: bool, root: Path = REPOSITORY) -> list[str]:
    code = HOST.format(root=str(root), folder=str(folder), waits=waits)
    return [sys.executable, "-c", code]


async def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"{left} live on"
        await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def test_a_killed_host_takes_its_jails_with_it_and_the_next_goes_on() -> None:
    async with local_jails() as provider:
        process = await asyncio.create_subprocess_exec(
            *host(provider._folder, waits=True), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        said = [(await process.stdout.readline()).decode() for _ in range(3)]
        members = process_tree(int(said[2].split()[1]))
        assert len(members) >= 5
        shared = await provider.open("thread", fence=1)
        assert await content(shared, "file") == b"kept\n"
        provider.release("thread")
        process.kill()
        await process.wait()
        await until_gone(members)
        sandbox = await provider.open("thread", fence=2)
        assert await content(sandbox, "file") == b"kept\n"


async def test_a_workspace_locked_elsewhere_is_refused_and_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_access, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(shared_access, "HELLO_SECONDS", 0.2)
    async with local_jails() as provider:
        await (await provider.open("thread", fence=1)).close()
        lock = os.open(provider._folder / "threads" / "thread" / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SandboxUnavailable, match="in use by another process"):
            await provider.open("thread", fence=1)
        with pytest.raises(SandboxUnavailable, match="in use by another process"):
            await provider.destroy("thread")
        os.close(lock)
        assert (await run(await provider.open("thread", fence=1), "true")).exit_code == 0


async def test_the_limits_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.local.provider.find_cgroups", lambda limits: None)
    async with local_jails() as provider:
        states = {state.name: state for state in await provider.describe()}
    assert {"memory", "workspace", "reserve"} == {name for name, state in states.items() if state.held_by == "watchdog"}
    assert states["user"].held_by == ("kernel" if os.geteuid() == 0 else "nobody")


async def test_a_command_over_the_limit_of_time_is_stopped_and_told() -> None:
    async with local_jails(SandboxLimits(command_seconds=0.5)) as provider:
        done = await run(await provider.open("thread", fence=1), "sleep 100")
        assert done.exit_code == 130
        assert "exceeded the time limit" in done.output


async def test_a_private_data_folder_is_refused_with_a_remedy() -> None:
    if os.geteuid() != 0:
        lacking("jail", "only root drops to another user, so no private data folder was tried")
    async with reachable_folder() as folder:
        private = folder / "home"
        private.mkdir(mode=0o700)
        provider = LocalSandboxProvider(private / "data")
        result = await provider.probe()
        assert not result.ok
        assert str(private) in result.reason
        assert "THREADHAND_DATA_DIR" in result.remedy
        with pytest.raises(SandboxUnavailable) as caught:
            await provider.open("thread", fence=1)
        assert str(private) not in str(caught.value)


async def test_forbidden_namespaces_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable_folder() as folder:
        refusing = folder / "bwrap"
        refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        refusing.chmod(0o755)
        monkeypatch.setattr(jail_requirements, "require_bwrap", lambda place, drops_user: refusing)
        provider = LocalSandboxProvider(folder)
        result = await provider.probe()
        assert not result.ok
        assert "No permissions to create new namespace" in result.reason
        assert "Allow user namespaces" in result.remedy
        with pytest.raises(SandboxUnavailable):
            await provider.open("thread", fence=1)


@pytest.mark.parametrize("user", [2999])
async def test_an_unprivileged_user_can_run_jails(user: int) -> None:
    if os.geteuid() != 0:
        lacking("jail", "becoming an unprivileged user takes root")
    async with reachable_folder() as folder:
        tree, python = folder / "tree", Path("/usr/bin/python3")
        for package in ("core", "sandbox"):
            shutil.copytree(REPOSITORY / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
        site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        (folder / "data").mkdir()
        os.chown(folder / "data", user, user)
        code = HOST.format(root=str(tree), folder=str(folder / "data"), waits=False)
        code = f"import sys; sys.path.append({str(site)!r})\n" + code
        done = await asyncio.to_thread(
            subprocess.run, [python, "-B", "-c", code], user=user, group=user, extra_groups=[],
            env={}, cwd="/", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if "ModuleNotFoundError" in done.stderr or "Permission" in done.stderr:
            lacking("jail", f"no python that user {user} can read: {done.stderr[-200:]}")
        if "probe False" in done.stdout:
            lacking("jail", f"user {user} may make no namespaces: {done.stdout[-300:]}")
        assert "probe True" in done.stdout, done
        assert "said 1000" in done.stdout
        assert (folder / "data/threads/thread/workspace/file").stat().st_uid == user


async def test_an_unsafe_process_ends_with_its_sessions() -> None:
    async with reachable_folder() as folder:
        provider = UnsafeProcessProvider(folder)
        sandbox = await provider.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"x"))
        done = await run(sandbox, "echo $$; env | grep -c TOKEN; sleep 100", seconds=0.5)
        shell = int(done.output.split()[0])
        await provider.close()
        await until_gone([shell])


async def test_nobody_uses_it_for_fifteen_minutes_and_it_is_stopped() -> None:
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        await run(sandbox, "echo kept > file; sleep 1000 &")
        (jail,) = day.jails._jails()
        await day.passes(14)
        assert len(day.jails._jails()) == 1
        await day.passes(2)
        assert day.jails._jails() == []
        assert not Path(f"/proc/{jail.pid}").exists()
        again = await day.jails.open("thread", fence=2)
        assert await content(again, "file") == b"kept\n"


async def test_one_that_works_is_never_stopped_nor_one_just_used() -> None:
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        working = asyncio.ensure_future(run(sandbox, "read x"))
        await until(lambda: day.jails._jails()[0].connection.is_busy)
        await day.passes(100)
        assert len(day.jails._jails()) == 1
        await sandbox.shell.type_text("main", "\n")
        await working
        await day.passes(14)
        assert len(day.jails._jails()) == 1


async def test_one_that_is_opened_while_it_is_about_to_be_stopped_goes_on() -> None:
    async with a_day() as day:
        await day.jails.open("thread", fence=1)
        async with day.jails._machines.keep_stopped("thread"):
            opening = spawn(day.jails.open("thread", fence=2), name="open")
            await asyncio.sleep(0)  # its turn comes first
            stopping = spawn(day.passes(16), name="stop")
            while len(day.jails._machines._locks["thread"]._waiters or ()) < 2:
                await asyncio.sleep(0.01)
        sandbox = await opening
        await stopping
        assert (await run(sandbox, "echo on")).output == "on\n"


async def test_nothing_is_deleted_before_what_replaces_it_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[list[str]] = []

    def fail(folder: Path) -> None:
        synced.append(sorted(path.name for path in folder.glob("workspace*")))
        raise OSError(errno.EIO, "no disk")

    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"x"))
        with monkeypatch.context() as patch:
            patch.setattr(lifecycle, "sync_disk", fail)
            await day.passes(300)
            await day.passes(1)
        assert synced == [["workspace", "workspace.tar.gz"]]
        sandbox = await day.jails.open("thread", fence=2)
        assert await content(sandbox, "file") == b"x"
        await day.passes(300)
        await day.passes(1)
        assert day.is_archived
        with monkeypatch.context() as patch:
            patch.setattr(lifecycle, "sync_disk", fail)
            with pytest.raises(SandboxUnavailable, match="cannot be restored"):
                await day.jails.open("thread", fence=3)
        assert synced[1] == ["workspace.new", "workspace.tar.gz"]
        assert day.is_archived
        assert await content(await day.jails.open("thread", fence=4), "file") == b"x"


async def test_what_another_process_left_is_archived_too() -> None:
    async with a_day() as day:
        await (await day.jails.open("thread", fence=1)).files.write("file", pieces(b"x"))
        await day.restart()
        await day.passes(119)
        assert not day.is_archived
        await day.passes(2)
        assert day.is_archived
        await day.restart()
        assert await content(await day.jails.open("thread", fence=2), "file") == b"x"


async def test_one_that_another_process_runs_is_left_alone() -> None:
    async with a_day() as day, a_second(day) as other:
        await other.open("thread", fence=1)
        await day.passes(500)
        assert not day.is_archived


@asynccontextmanager
async def a_second(day: Day) -> AsyncGenerator[LocalSandboxProvider]:
    async with close_after(LocalSandboxProvider(day.folder, lifecycle_policy=DEFAULT_LIFECYCLE, now=day.now)) as jails:
        yield jails


async def test_a_jail_that_ended_alone_is_told_to_the_next_run_once() -> None:
    async with a_day() as day:
        sandbox = await day.jails.open("thread", fence=1)
        await sandbox.files.write("file", pieces(b"x"))
        (jail,) = day.jails._jails()
        os.kill(jail.pid, signal.SIGKILL)
        await until(lambda: jail.connection.is_lost)
        await day.jails.open("thread", fence=0)
        with pytest.raises(SandboxUnavailable, match="ended unexpectedly"):
            await day.jails.open("thread", fence=2)
        assert await content(await day.jails.open("thread", fence=2), "file") == b"x"


async def test_a_folder_that_cannot_be_locked_holds_up_no_other() -> None:
    async with a_day() as day:
        first = await day.jails.open("a-first", fence=1)
        second = await day.jails.open("thread", fence=1)
        for sandbox in (first, second):
            await sandbox.files.write("kept", pieces(b"x"))
        await day.passes(15)
        lock = day.home.parent / "a-first" / "lock"
        lock.unlink(missing_ok=True)
        lock.mkdir()
        await day.passes(120)
        assert day.is_archived
