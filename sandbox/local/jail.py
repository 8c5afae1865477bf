"""One running jail: its bubblewrap process and the connection to the program inside."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sandbox.client.connection import Connection
from sandbox.local import bwrap
from sandbox.local.bwrap import JailPlan
from sandbox.local.cgroups import Cgroup, Cgroups
from sandbox.local.egress import Egress
from sandbox.local.egress_proxy import Gateway
from sandbox.local.processes import is_living, with_descendants
from sandbox.local.workspaces import Workspace

STOP_SECONDS = 5.0
STREAM_BYTES = 256 * 1024


class Jail:
    """Satisfies `sandbox.machines.Machine`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        connection: Connection,
        workspace: Workspace,
        cgroups: Cgroups | None,
        gateway: Gateway | None = None,
    ) -> None:
        self._process = process
        self._connection = connection
        self.workspace = workspace
        self._cgroups = cgroups
        self._gateway = gateway
        self._cgroup: Cgroup | None = None

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def pid(self) -> int:
        """Of the outermost bwrap; all that runs in the jail descends from it."""
        return self._process.pid

    @property
    def folder(self) -> Path:
        """The workspace, seen from the host."""
        return self.workspace.path

    @property
    def has_memory_group(self) -> bool:
        return self._cgroup is not None

    async def ready(self) -> None:
        if self._gateway is not None:
            self._gateway.start()
        if self._cgroups is not None:
            self._cgroup = self._cgroups.hold(self.pid, name=f"jail-{self.pid}")

    async def stop(self) -> None:
        """Returns when no process of the jail is left: with its init the kernel kills the whole namespace."""
        inits = self._inits()
        try:
            await self._connection.close()
            if self._gateway is not None:
                await self._gateway.close()
            if self._process.poll() is None:
                self._kill_init()
                if not await _until(lambda: self._process.poll() is not None):
                    self._process.kill()
                    await _until(lambda: self._process.poll() is not None)
            # bubblewrap outside may end before its init, which the end of its program ends too
            await _until(lambda: not any(map(is_living, inits)))
            if self._cgroup is not None:
                await self._cgroup.remove()
                self._cgroup = None
        finally:
            self.workspace.close()

    def _inits(self) -> list[int]:
        """The jail's init; none as long as there is none."""
        return with_descendants(self.pid)[1:2]

    def _kill_init(self) -> None:
        inits = self._inits()
        if not inits:
            self._process.kill()  # it has not come so far
        for init in inits:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)


async def _until(is_so: Callable[[], bool]) -> bool:
    """Whether it came so in time."""
    pause, waited = 0.001, 0.0
    while not is_so() and waited < STOP_SECONDS:
        await asyncio.sleep(pause)
        waited += pause
        pause = min(pause * 2, 0.05)
    return is_so()


async def start_jail(
    executable: Path,
    plan: JailPlan,
    workspace: Workspace,
    *,
    drops_user: bool,
    cgroups: Cgroups | None,
    egress: Egress | None = None,
) -> Jail:
    """Raises OSError when bubblewrap cannot be started; a jail that fails later ends its connection."""
    label = workspace.path.parent.name
    gateway = None if egress is None else Gateway(egress, label=label)
    with ExitStack() as undoing:
        ours, theirs = socket.socketpair()
        undoing.callback(ours.close)  # at which the program inside ends
        if gateway is not None:
            undoing.callback(gateway.discard)
        with theirs:
            process = _spawned(executable, plan, workspace.uid, drops_user, theirs, gateway)
        undoing.callback(process.kill)
        reader, writer = await asyncio.open_connection(sock=ours, limit=STREAM_BYTES)
        undoing.pop_all()
    return Jail(process, Connection(reader, writer, label=label), workspace, cgroups, gateway)


def _spawned(
    executable: Path,
    plan: JailPlan,
    uid: int,
    drops_user: bool,
    end: socket.socket,
    gateway: Gateway | None,
) -> subprocess.Popen[bytes]:
    """On this very thread: the kernel's parent-death signal follows the thread that starts it."""
    passed = [end.fileno()] if gateway is None else [end.fileno(), gateway.for_inside.fileno()]
    settings = {
        "root": "/workspace",
        "limits": plan.limits.for_processes(),
        "command_seconds_max": plan.limits.command_seconds,
        "browser": plan.toolbox.for_the_browser() if plan.toolbox else None,
        "egress": None if gateway is None else gateway.for_inside.fileno(),
    }
    with ExitStack() as stack:
        arguments_fd, descriptors = bwrap.arguments(plan, stack)
        command = ["bwrap", "--args", str(arguments_fd), "--", str(plan.python), "-I", "-S"]
        command += [f"{bwrap.PROGRAM_FOLDER}/agent.py", str(passed[0]), str(passed[0])]
        command.append(json.dumps(settings))
        return start_process(executable, command, [*descriptors, *passed], uid, drops_user)


def start_process(
    executable: Path,
    command: list[str],
    descriptors: list[int],
    uid: int,
    drops_user: bool,
    *,
    stderr: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts bubblewrap as that user, without our environment and with those descriptors only."""
    user = uid if drops_user else None
    return subprocess.Popen(
        command,
        executable=executable,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={},
        cwd="/",
        pass_fds=descriptors,
        user=user,
        group=user,
        extra_groups=[] if drops_user else None,
        umask=0o022,
    )


def is_root() -> bool:
    return os.geteuid() == 0
