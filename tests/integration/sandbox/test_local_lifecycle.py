"""Local jails over the hours: stopped, archived, restored, lost; the clock is the test's."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.domain.errors import SandboxUnavailable
from core.tasks import spawn
from sandbox.local import lifecycle
from sandbox.local.provider import LocalSandboxProvider
from tests.integration.sandbox.controlled_clock import DEFAULT_LIFECYCLE, Day, a_day
from tests.support.closing import close_after
from tests.support.sandboxes import content, pieces, run
from tests.support.waiting import until


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
