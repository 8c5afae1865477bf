"""The shared access of a process, through which others reach its sandboxes, while it is closed."""

import asyncio
import fcntl
import os
import socket
from pathlib import Path

import pytest

from core.domain.errors import SandboxUnavailable
from sandbox.local.shared_access import SharedAccess
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes
from tests.support.narrow import require_type


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
