"""The life of a jail: started once, replaced when dead, gone with its host, and refused where it cannot be."""

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.domain.errors import SandboxUnavailable
from sandbox.limits import SandboxLimits
from sandbox.local import jail_requirements, shared_access
from sandbox.local.process_table import process_tree
from sandbox.local.provider import LocalSandboxProvider
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import content, local_jails, pieces, reachable_folder, run

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
