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
from functools import partial
from pathlib import Path
from typing import cast

from core.domain.errors import LeaseLost, SandboxUnavailable
from core.domain.ids import new_id
from core.server_shutdown import stop_accepting
from core.tasks import cancel, spawn
from sandbox.client.call import parse_json_object
from sandbox.client.connection import Connection
from sandbox.diagnostics import sandbox_unavailable
from sandbox.inside import protocol
from sandbox.local.processes import process_tree
from sandbox.local.workspaces import LockHolder, Workspace, WorkspaceInUse, Workspaces
from sandbox.running_sandboxes import RunningSandbox

HELLO_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
RETRY_SECONDS = 0.05
STREAM_BYTES = 256 * 1024
WELCOME = b"+"

log = logging.getLogger(__name__)


class RemoteSandbox:
    """A sandbox that another process runs. Stopping it only closes this connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        return self._connection

    async def ready(self) -> None:
        return

    async def stop(self) -> None:
        await self._connection.close()


class SharedAccess:
    """The door of this process, and the way through those of others. `running` finds what this process runs."""

    def __init__(
        self,
        folder: Path,
        workspaces: Workspaces,
        running: Callable[[], dict[str, RunningSandbox]],
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
            raise sandbox_unavailable(error, "There is no sandbox.") from error
        self._fences[thread_id] = fence

    async def take(self, thread_id: str) -> Workspace | RemoteSandbox:
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
                return RemoteSandbox(await self._entered(tenant, thread_id))
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

    async def _entered(self, tenant: LockHolder, thread_id: str) -> Connection:
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

    def _evict(self, thread_id: str, tenant: LockHolder) -> None:
        """Ends the sandbox of a process that stands still: for a newer run at once, for a reader after a while."""
        log.warning("the sandbox of thread %s is taken from a process that stands still", thread_id)
        if tenant.pid:
            for pid in process_tree(tenant.pid):
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
            if machine is None or isinstance(machine, RemoteSandbox):
                return
            writer.write(WELCOME)
            await ClientRelay(machine.connection, writer, self._newest(wish["thread"])).play(reader)
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


ENDS = (protocol.RESULT, protocol.ERROR)
STALE = {"code": "stale", "message": "another run uses this sandbox"}


class ClientRelay:
    """One guest. `is_newest` tells whether a run of that fence may still do something; readers bear none."""

    def __init__(
        self,
        connection: Connection,
        writer: asyncio.StreamWriter,
        is_newest: Callable[[int], bool],
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._is_newest = is_newest
        self._fence = 0
        self._channels: dict[int, int] = {}

    async def play(self, reader: asyncio.StreamReader) -> None:
        """Until the guest leaves, or the sandbox ends. Raises IncompleteReadError, OSError, ValueError and
        SandboxUnavailable."""
        self._writer.write(
            protocol.encode_json_frame(protocol.HELLO, 0, {"protocol": protocol.PROTOCOL_VERSION})
        )
        try:
            while True:
                header = await reader.readexactly(protocol.HEADER.size)
                length, kind, channel = protocol.HEADER.unpack(header)
                if length > protocol.payload_bytes_max(kind):
                    raise ValueError(f"a frame of kind {kind} with {length} bytes")
                payload = await reader.readexactly(length) if length else b""
                await self._take(kind, channel, payload)
        finally:
            for inside in self._channels.values():
                self._connection.pass_on(protocol.CANCEL, inside, b"")
                self._connection.end_relay(inside)

    async def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == protocol.HELLO:
            await self._rise(_fence_of(payload))
        elif kind == protocol.OPEN:
            await self._open(channel, payload)
        elif (inside := self._channels.get(channel)) is not None:
            self._connection.pass_on(kind, inside, payload)
            if kind == protocol.CANCEL:
                self._connection.end_relay(inside)
                self._channels.pop(channel, None)

    async def _rise(self, fence: int) -> None:
        """The guest's run is a newer one: what older ones still run inside ends first."""
        self._fence = max(self._fence, fence)
        if self._fence and self._is_newest(self._fence):
            await self._connection.call("fence", fence=self._fence)

    async def _open(self, channel: int, payload: bytes) -> None:
        request = parse_json_object(payload)
        if request.get("op") == "fence":
            self._fence = max(self._fence, _fence_of(payload))
        if self._fence and not self._is_newest(self._fence):
            self._writer.write(protocol.encode_json_frame(protocol.ERROR, channel, dict(STALE)))
            return
        self._channels[channel] = self._connection.relay(payload, partial(self._deliver, channel))

    def _deliver(self, channel: int, kind: int, payload: bytes) -> None:
        if kind == protocol.CANCEL:
            self._writer.close()
            return
        self._writer.write(protocol.encode_frame(kind, channel, payload))
        if kind in ENDS and (inside := self._channels.pop(channel, None)) is not None:
            self._connection.end_relay(inside)


def _fence_of(payload: bytes) -> int:
    fence = json.loads(payload).get("fence", 0)
    if not isinstance(fence, int):
        raise ValueError("a fence that is no number")
    return fence
