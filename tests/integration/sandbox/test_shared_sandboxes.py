"""One sandbox for several processes of a machine: two providers on one folder stand for two of them."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.domain.errors import LeaseLost, SandboxUnavailable
from core.web_access.guard import AddressGuard
from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig, EgressLimits, parse_egress_policy
from sandbox.local.provider import LocalSandboxProvider
from sandbox.local.shared_access import SharedAccess
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.chaos.program import REPOSITORY
from tests.integration.sandbox.egress_stage import fake_web_service
from tests.requirements_of_the_machine import lacking
from tests.support.narrow import require, require_type
from tests.support.sandboxes import content, pieces, reachable_folder, run
from tests.support.waiting import until

Providers = tuple[UnsafeProcessProvider | LocalSandboxProvider, UnsafeProcessProvider | LocalSandboxProvider]


@asynccontextmanager
async def _two(
    kind: str, folder: Path, *, egress: EgressConfig | None = None, limits: SandboxLimits | None = None
) -> AsyncIterator[Providers]:
    if kind == "local":
        first, second = (LocalSandboxProvider(folder, egress=egress, limits=limits) for _ in range(2))
        jails = first, second
        for one in jails:
            result = await one.probe()
            if not result.ok:
                lacking("jail", f"{result.reason} {result.remedy}")
        both: Providers = jails
    else:
        both = UnsafeProcessProvider(folder), UnsafeProcessProvider(folder)
    try:
        yield both
    finally:
        for one in both:
            await one.close()


@pytest.fixture(params=["unsafe-process", "local"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[Providers]:
    async with reachable_folder() as folder, _two(request.param, folder) as providers:
        yield providers


async def test_a_neighbour_works_in_the_same_sandbox(both: Providers) -> None:
    host, guest = both
    first = await host.open("thread", fence=1)
    await run(first, "cd /tmp 2>/dev/null; export KEPT=yes")
    second = await guest.open("thread", fence=2)
    assert (await run(second, "echo $KEPT")).output == "yes\n"
    await second.files.write("made.txt", pieces(b"made next door"))
    assert await content(first, "made.txt") == b"made next door"
    large = b"x" * 3_000_000
    await second.files.write("large.bin", pieces(large))
    assert await content(first, "large.bin") == large


async def test_a_connection_is_known_next_door_and_in_the_next_jail() -> None:
    async with fake_web_service() as outside, reachable_folder() as folder:
        egress = EgressConfig(
            policy=parse_egress_policy("on"),
            limits=EgressLimits(),
            guard=AddressGuard(frozenset({("127.0.0.1", outside.port)})),
        )
        async with _two("local", folder, egress=egress) as (host, guest):
            sandboxes = [await host.open("thread", fence=1), await guest.open("thread", fence=2)]
            await run(sandboxes[-1], f"curl -sS --noproxy '' http://127.0.0.1:{outside.port}/")
            assert outside.asked == ["/"]
            guest.release("thread")
            await host.close()
            sandboxes.append(await guest.open("thread", fence=3))
            assert [sandbox.has_fetched for sandbox in sandboxes] == [True, True, True]


async def test_an_older_run_is_refused_next_door_and_at_home(both: Providers) -> None:
    host, guest = both
    older = await host.open("thread", fence=1)
    await run(await guest.open("thread", fence=2), "true")
    with pytest.raises(LeaseLost):
        await run(older, "true")
    newer = await host.open("thread", fence=3)
    await run(newer, "true")
    stale = await guest.open("thread", fence=2)
    with pytest.raises(LeaseLost):
        await stale.files.write("made.txt", pieces(b"too late"))


async def test_an_older_run_starts_no_sandbox_after_a_newer_one(both: Providers) -> None:
    host, guest = both
    await host.open("thread", fence=5)
    await host.close()
    with pytest.raises(LeaseLost):
        await guest.open("thread", fence=4)


async def test_the_files_are_there_when_the_neighbour_has_left(both: Providers) -> None:
    host, guest = both
    await (await host.open("thread", fence=1)).files.write("made.txt", pieces(b"made"))
    second = await guest.open("thread", fence=2)
    await host.close()
    with pytest.raises(SandboxUnavailable):
        await run(second, "true")
    third = await guest.open("thread", fence=2)
    assert await content(third, "made.txt") == b"made"


async def test_a_sandbox_is_destroyed_from_next_door(both: Providers) -> None:
    host, guest = both
    await (await host.open("thread", fence=1)).files.write("made.txt", pieces(b"made"))
    await guest.destroy("thread")
    fresh = await guest.open("thread", fence=1)
    assert await fresh.files.list("") == ()


async def test_a_run_next_door_holds_the_sandbox_until_its_end() -> None:
    async with reachable_folder() as folder, _two("local", folder, limits=SandboxLimits(sandboxes=2)) as (host, guest):
        await host.open("first", fence=1)
        host.release("first")
        await run(await guest.open("first", fence=2), "true")
        for thread_id in ("second", "third"):
            await host.open(thread_id, fence=1)
            host.release(thread_id)
        await run(held := await guest.open("first", fence=2), "echo still here > /tmp/note")
        assert (await run(held, "cat /tmp/note")).output == "still here\n"
        assert [jails.occupancy().running for jails in (host, guest) if isinstance(jails, LocalSandboxProvider)] == [
            2,
            0,
        ]
        guest.release("first")
        shared = host._machines.running_by_thread()["first"].connection
        await until(lambda: not shared.is_held)
        await host.open("second", fence=2)
        assert set(host._machines.running_by_thread()) == {"second", "third"}


async def test_a_limit_that_ended_the_sandbox_is_named_next_door() -> None:
    limits = SandboxLimits(workspace_bytes=5 << 20)
    async with reachable_folder() as folder, _two("local", folder, limits=limits) as (host, guest):
        await host.open("thread", fence=1)
        host.release("thread")
        sandbox = await guest.open("thread", fence=2)
        with pytest.raises(SandboxUnavailable, match="stopped working"):
            await run(sandbox, "head -c 40M /dev/zero > large; sleep 60")
        with pytest.raises(SandboxUnavailable, match="5 MB are allowed"):
            await guest.open("thread", fence=2)
        await run(await guest.open("thread", fence=2), "true")


@pytest.mark.parametrize("end", ["by the neighbour", "alone between runs"])
async def test_a_run_learns_that_the_sandbox_next_door_has_ended(end: str) -> None:
    async with reachable_folder() as folder, _two("local", folder) as (host, guest):
        assert isinstance(host, LocalSandboxProvider)
        await host.open("thread", fence=1)
        host.release("thread")
        if end == "by the neighbour":
            await run(await guest.open("thread", fence=2), "sleep 1000 &")
            await host.close()
        else:
            (jail,) = host._jails()
            os.kill(jail.pid, signal.SIGKILL)
            await until(lambda: jail.connection.is_lost)
        with pytest.raises(SandboxUnavailable, match="ended unexpectedly"):
            await guest.open("thread", fence=2)
        await run(await guest.open("thread", fence=2), "true")


FROZEN = """
import asyncio, os, signal, sys
from pathlib import Path
from sandbox.unsafe_process import UnsafeProcessProvider

async def main():
    sandbox = await UnsafeProcessProvider(Path(sys.argv[1])).open("thread", fence=1)
    async def freeze():
        await asyncio.sleep(0.5)
        print("frozen", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    asyncio.get_running_loop().create_task(freeze())
    await sandbox.shell.execute("sleep 30; echo late > late.txt", session="a", folder=None, timeout_seconds=60)

asyncio.run(main())
"""


async def test_a_sandbox_is_taken_from_a_process_that_stands_still() -> None:
    async with reachable_folder() as folder:
        frozen = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            FROZEN,
            str(folder),
            env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
            stdout=asyncio.subprocess.PIPE,
        )
        guest = UnsafeProcessProvider(folder)
        try:
            assert await require(frozen.stdout).readline() == b"frozen\n"
            sandbox = await guest.open("thread", fence=2)
            assert (await run(sandbox, "echo mine > mine.txt; cat mine.txt")).output == "mine\n"
            assert [one.path for one in await sandbox.files.list("")] == ["mine.txt"]
        finally:
            frozen.kill()
            await frozen.wait()
            await guest.close()


async def start_nothing(_thread_id: str) -> RunningSandbox:
    raise SandboxUnavailable("There is no sandbox.")


@pytest.mark.parametrize("turns", range(8))
async def test_who_comes_while_access_is_closed_is_not_left_waiting(tmp_path: Path, turns: int) -> None:
    workspaces = Workspaces(tmp_path / "sandboxes", drops_user=False)
    workspaces.prepare()
    access = SharedAccess(tmp_path / "access", workspaces, RunningSandboxes(start_nothing))
    taken = require_type(await access.acquire("thread"), Workspace)
    with socket.socket(socket.AF_UNIX) as caller:
        folder = os.open(tmp_path / "access", os.O_PATH)
        caller.connect(f"/proc/self/fd/{folder}/{taken.socket_name}")  # an address may not be long
        os.close(folder)
        for _ in range(turns):
            await asyncio.sleep(0)
        await access.close()
        caller.settimeout(30)
        assert await asyncio.to_thread(_heard, caller) == b""
    taken.close()


def _heard(caller: socket.socket) -> bytes:
    try:
        return caller.recv(1)
    except ConnectionResetError:  # it was never accepted
        return b""


def test_a_frozen_holder_of_a_short_lock_does_not_freeze_this_process(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path, drops_user=False)
    workspaces.record_fence("thread", 3)
    with (tmp_path / "thread" / "fence").open("rb") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            workspaces.record_fence("thread", 4)
    workspaces.record_fence("thread", 4)
