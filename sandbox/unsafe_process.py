"""A provider without any isolation: runs the program inside as a plain child process in a folder.

Meant for the scripted demo only: commands run as the user of this process and can reach everything it can. The folder
stands for /workspace in file paths and is the directory that commands start in. The path /workspace itself does not
exist, so a command that uses it as an absolute path fails."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox.client.connection import Connection
from sandbox.client.sandbox_client import SandboxClient
from sandbox.limits import SandboxLimits
from sandbox.local.shared_access import SharedAccess
from sandbox.local.workspaces import Workspace, Workspaces
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes, usable_cores

STOP_SECONDS = 5.0
PACKAGE_PARENT = Path(__file__).parent.parent
START = "import sys; sys.path.insert(0, sys.argv.pop()); from sandbox.inside.program import main; main()"


class UnsafeProcessProvider:
    """Satisfies `core.ports.SandboxProvider`, with no isolation at all."""

    def __init__(self, folder: Path, *, limits: SandboxLimits | None = None) -> None:
        self._limits = limits or SandboxLimits()
        self._workspaces = Workspaces(folder.absolute() / "unsafe-threads", drops_user=False)
        self._machines = RunningSandboxes(self._start, starts_at_once=usable_cores())
        self._shared_access = SharedAccess(folder.absolute() / "doors", self._workspaces, self._machines)

    @property
    def name(self) -> str:
        return "unsafe-process"

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        return await self._shared_access.open(thread_id, fence=fence)

    def release(self, thread_id: str) -> None:
        self._machines.release(thread_id)  # its files are saved as they are written

    async def destroy(self, thread_id: str) -> None:
        await self._shared_access.stop(thread_id)
        await asyncio.to_thread(self._workspaces.delete, thread_id)

    async def close(self) -> None:
        await self._shared_access.close()

    async def _start(self, thread_id: str) -> RunningSandbox:
        return await self._shared_access.start(thread_id, self._start_process, "There is no sandbox.")

    async def _start_process(self, workspace: Workspace) -> "_Process":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _child(theirs.fileno(), workspace.path.resolve(), self._limits)
            except BaseException:
                ours.close()
                raise
        workspace.record_process(process.pid)
        reader, writer = await asyncio.open_connection(sock=ours)
        return _Process(process, Connection(reader, writer, label="unsafe-process"), workspace)


@dataclass(eq=False)
class _Process:
    process: subprocess.Popen[bytes]
    connection: Connection
    workspace: Workspace
    is_remote: bool = False

    async def on_hello(self) -> None:
        return

    async def stop(self) -> None:
        """When the stream ends, the program inside ends its sessions and then itself."""
        await self.connection.close()
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while self.process.poll() is None:
            if asyncio.get_running_loop().time() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
            await asyncio.sleep(0.005)
        self.workspace.close()


def _child(end: int, folder: Path, limits: SandboxLimits) -> subprocess.Popen[bytes]:
    settings = {
        "root": str(folder),
        "limits": {"RLIMIT_FSIZE": limits.file_bytes, "RLIMIT_CORE": 0},
        "command_seconds_max": limits.command_seconds,
    }
    command = [sys.executable, "-I", "-S", "-c", START, str(end), str(end), json.dumps(settings)]
    return subprocess.Popen(
        [*command, str(PACKAGE_PARENT)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        # without this process's own variables, which may contain tokens
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
        },
        pass_fds=[end],
        start_new_session=True,
    )
