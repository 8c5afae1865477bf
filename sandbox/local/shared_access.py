"""One sandbox, several processes of a machine: whoever runs it lets the others in by a door, a unix socket.

Through a door go the same frames as to the program inside, for one thread. The process that runs the sandbox gives each
call a channel of its own there; flow control passes through. A door that stands still belongs to a process that does
not go on: a newer run (a higher fence) ends that sandbox and starts its own.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from core.domain.errors import LeaseLost, SandboxUnavailable
from core.domain.ids import new_id
from core.server_shutdown import stop_accepting
from core.tasks import cancel, spawn
from sandbox.client.connection import Connection
from sandbox.full_disk import not_had
from sandbox.local.processes import with_descendants
from sandbox.local.relay import Relay
from sandbox.local.workspaces import Tenant, Workspace, WorkspaceInUse, Workspaces
from sandbox.machines import Machine

HELLO_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
RETRY_SECONDS = 0.05
STREAM_BYTES = 256 * 1024
WELCOME = b"+"

log = logging.getLogger(__name__)


class Remote:
    """Satisfies `sandbox.machines.Machine`: a sandbox that another process runs. Stopping it only lets go of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        return self._connection

    async def ready(self) -> None:
        return

    async def stop(self) -> None:
        await self._connection.close()


class Doors:
    """The door of this process, and the way through those of others. `running` finds what this process runs."""

    def __init__(
        self,
        folder: Path,
        workspaces: Workspaces,
        running: Callable[[], dict[str, Machine]],
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._workspaces = workspaces
        self._running = running
        self._end = end
        self._name = f"{new_id()}.sock"
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._fences: dict[str, int] = {}
        self._guests: set[asyncio.Task[None]] = set()

    def note(self, thread_id: str, fence: int) -> None:
        """A run of that fence uses the sandbox from now on. Raises LeaseLost where a newer one has."""
        if fence <= self._fences.get(thread_id, 0):
            return
        try:
            self._workspaces.advance(thread_id, fence)
        except OSError as error:
            raise not_had(error, "There is no sandbox.") from error
        self._fences[thread_id] = fence

    async def take(self, thread_id: str) -> Workspace | Remote:
        """The thread's workspace, or the sandbox that another process runs in it. Raises SandboxUnavailable."""
        door = await self._opened()
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE_SECONDS
        while True:
            try:
                return self._workspaces.take(thread_id, door=door)
            except WorkspaceInUse as taken:
                if clock() > deadline + HELLO_SECONDS:
                    raise
                tenant = taken.tenant
            try:
                return Remote(await self._entered(tenant, thread_id))
            except TimeoutError:
                if self._fences.get(thread_id) or clock() > deadline:
                    self._evict(thread_id, tenant)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)  # it is just starting, or just ending

    async def end_elsewhere(self, thread_id: str) -> None:
        """Asks the process that runs the sandbox to end it. Nothing where there is none, or it does not answer."""
        if not self._workspaces.has(thread_id):
            return
        try:
            self._workspaces.take(thread_id).close()
        except WorkspaceInUse as taken:
            with contextlib.suppress(OSError, TimeoutError):
                async with (
                    asyncio.timeout(HELLO_SECONDS),
                    self._at(taken.tenant.door, {"end": thread_id}) as (reader, _),
                ):
                    await reader.read()

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
            server.close()
        for guest in tuple(self._guests):
            await cancel(guest)
        (self._folder / self._name).unlink(missing_ok=True)

    async def _opened(self) -> str:
        """The name of the own door, which is made at the first need."""
        async with self._opening:
            if self._server is None:
                self._server = await self._listening()
        return self._name

    async def _listening(self) -> asyncio.Server:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        with _short(self._folder) as folder:
            listening.bind(f"{folder}/{self._name}")
        return await asyncio.start_unix_server(self._receive, sock=listening, limit=STREAM_BYTES)

    async def _entered(self, tenant: Tenant, thread_id: str) -> Connection:
        """Raises TimeoutError where nobody moves behind the door, OSError where there is none."""
        async with asyncio.timeout(HELLO_SECONDS):
            reader, writer = await self._knock(tenant.door, {"thread": thread_id})
            try:
                if not await reader.read(len(WELCOME)):
                    raise ConnectionResetError("the sandbox is not there")
            except BaseException:
                writer.close()
                raise
        return Connection(reader, writer, label=f"{thread_id} next door")

    @asynccontextmanager
    async def _at(
        self, door: str, wish: dict[str, str]
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        reader, writer = await self._knock(door, wish)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _knock(
        self, door: str, wish: dict[str, str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not door or "/" in door:
            raise FileNotFoundError("there is no door")
        with _short(self._folder) as folder:
            reader, writer = await asyncio.open_unix_connection(
                f"{folder}/{door}", limit=STREAM_BYTES
            )
        writer.write(json.dumps(wish).encode() + b"\n")
        return reader, writer

    def _evict(self, thread_id: str, tenant: Tenant) -> None:
        """Ends the sandbox of a process that stands still: for a newer run at once, for a reader after a while."""
        log.warning("the sandbox of thread %s is taken from a process that stands still", thread_id)
        if tenant.pid:
            for pid in with_descendants(tenant.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._workspaces.evict(thread_id, tenant)

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        guest = spawn(self._serve(reader, writer), name="a guest in a sandbox")
        self._guests.add(guest)
        guest.add_done_callback(self._guests.discard)
        # one that is cancelled before it has begun comes to no end of its own
        guest.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wish = _wish(await reader.readline())
            if "end" in wish:
                await self._end(wish["end"])
                return
            machine = self._running().get(wish.get("thread", ""))
            if machine is None or isinstance(machine, Remote):
                return
            writer.write(WELCOME)
            await Relay(machine.connection, writer, self._newest(wish["thread"])).play(reader)
        except (asyncio.IncompleteReadError, OSError, ValueError, SandboxUnavailable) as error:
            log.debug("a guest left a sandbox: %s", error)
        finally:
            writer.close()

    def _newest(self, thread_id: str) -> Callable[[int], bool]:
        """Whether a run of that fence may still use the sandbox."""

        def is_newest(fence: int) -> bool:
            try:
                self.note(thread_id, fence)
            except LeaseLost:
                return False
            return fence >= self._fences.get(thread_id, 0)

        return is_newest


def _wish(line: bytes) -> dict[str, str]:
    found: object = json.loads(line or b"{}")
    if not isinstance(found, dict):
        raise ValueError("not a wish")
    return {str(name): str(value) for name, value in cast("dict[object, object]", found).items()}


@contextlib.contextmanager
def _short(folder: Path) -> Generator[str, None, None]:
    """A short name of the folder: an address of a unix socket has a hundred characters at most."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
