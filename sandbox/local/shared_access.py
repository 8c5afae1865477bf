"""Lets several processes of one machine use the same sandbox, over a unix socket of the process that runs it.

The socket carries the same frames as the stream to the program inside, for one thread. The process that runs the
sandbox gives each call a channel of its own; flow control passes through. If that process does not respond, a newer run
(one with a higher fencing token) ends its sandbox and starts its own."""

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
from core.http_shutdown import stop_accepting
from core.tasks import cancel, spawn
from sandbox.client.call import parse_json_object
from sandbox.client.connection import Connection
from sandbox.client.sandbox_client import SandboxClient
from sandbox.inside import protocol
from sandbox.local.process_table import process_tree
from sandbox.local.workspaces import Workspace, WorkspaceInUse, Workspaces
from sandbox.os_errors import sandbox_unavailable
from sandbox.running_sandboxes import RunningSandbox, RunningSandboxes, check_thread_id

HELLO_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
RETRY_SECONDS = 0.05
STREAM_BYTES = 256 * 1024
WELCOME = b"+"

log = logging.getLogger(__name__)


class RemoteSandbox:
    """Satisfies `sandbox.running_sandboxes.RunningSandbox` for a sandbox that another process runs."""

    is_remote = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        return self._connection

    async def on_hello(self) -> None:
        return

    async def stop(self) -> None:
        await self._connection.close()


class SharedAccess:
    """Opens and stops the sandboxes of threads in all processes of this machine: serves this process's sandboxes to
    other processes, and connects to theirs."""

    def __init__(self, folder: Path, workspaces: Workspaces, machines: RunningSandboxes) -> None:
        self._folder = folder
        self._workspaces = workspaces
        self._machines = machines
        self._name = f"{new_id()}.sock"
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._fences: dict[str, int] = {}
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self, thread_id: str, *, fence: int) -> SandboxClient:
        """Like `RunningSandboxes.open`. Raises LeaseLost if a newer run has used the sandbox."""
        check_thread_id(thread_id)
        self.record_fence(thread_id, fence)
        return await self._machines.open(thread_id, fence=fence)

    async def start(
        self, thread_id: str, start_in: Callable[[Workspace], Awaitable[RunningSandbox]], public_message: str
    ) -> RunningSandbox:
        """Returns the sandbox that another process runs for the thread. If there is none, locks the workspace and
        returns the sandbox that `start_in` starts in it. Raises SandboxUnavailable, also in place of an OSError."""
        try:
            self._workspaces.prepare()
            workspace = await self.acquire(thread_id)
            if isinstance(workspace, RemoteSandbox):
                return workspace
            try:
                return await start_in(workspace)
            except BaseException:
                workspace.close()
                raise
        except OSError as error:
            raise sandbox_unavailable(error, public_message) from error

    async def stop(self, thread_id: str) -> None:
        """Stops the thread's sandbox in whichever process it runs."""
        check_thread_id(thread_id)
        await self._machines.stop(thread_id)
        await self.stop_elsewhere(thread_id)

    def record_fence(self, thread_id: str, fence: int) -> None:
        """Records that the run with this fence uses the sandbox. Raises LeaseLost if a newer run has used it."""
        if fence <= self._fences.get(thread_id, 0):
            return
        try:
            self._workspaces.record_fence(thread_id, fence)
        except OSError as error:
            raise sandbox_unavailable(error, "There is no sandbox.") from error
        self._fences[thread_id] = fence

    async def acquire(self, thread_id: str) -> Workspace | RemoteSandbox:
        """Returns the thread's workspace, or the sandbox that another process runs in it. Raises SandboxUnavailable."""
        async with self._opening:
            if self._server is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                listening = socket.socket(socket.AF_UNIX)
                with _short_path(self._folder) as folder:
                    listening.bind(f"{folder}/{self._name}")
                self._server = await asyncio.start_unix_server(self._accept, sock=listening, limit=STREAM_BYTES)
        socket_name = self._name
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE_SECONDS
        while True:
            try:
                return self._workspaces.acquire(thread_id, socket_name=socket_name)
            except WorkspaceInUse as taken:
                if clock() > deadline + HELLO_SECONDS:
                    raise
                holder = taken.holder
            try:
                async with asyncio.timeout(HELLO_SECONDS):
                    reader, writer = await self._connect(holder.socket_name, {"thread": thread_id})
                    try:
                        if not await reader.read(len(WELCOME)):
                            raise ConnectionResetError("the sandbox is not there")
                    except BaseException:
                        writer.close()
                        raise
                return RemoteSandbox(Connection(reader, writer, label=f"{thread_id} in another process"))
            except TimeoutError:
                if self._fences.get(thread_id) or clock() > deadline:
                    # at once for a newer run, after a while for a reader
                    log.warning("taking over the sandbox of thread %s: its process does not respond", thread_id)
                    if holder.pid:
                        for pid in process_tree(holder.pid):
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                    self._workspaces.break_lock(thread_id, holder)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)  # the other process is starting or ending

    async def stop_elsewhere(self, thread_id: str) -> None:
        """Asks the process that runs the sandbox to end it.

        Does nothing if no process runs it or it does not respond."""
        if not self._workspaces.exists(thread_id):
            return
        try:
            self._workspaces.acquire(thread_id).close()
        except WorkspaceInUse as taken:
            with contextlib.suppress(OSError, TimeoutError):
                async with (
                    asyncio.timeout(HELLO_SECONDS),
                    self._connection_to(taken.holder.socket_name, {"end": thread_id}) as (reader, _),
                ):
                    await reader.read()

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)
            server.close()
        await cancel(*self._clients)
        (self._folder / self._name).unlink(missing_ok=True)
        await self._machines.close()

    @asynccontextmanager
    async def _connection_to(
        self, socket_name: str, request: dict[str, str]
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        reader, writer = await self._connect(socket_name, request)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _connect(
        self, socket_name: str, request: dict[str, str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not socket_name or "/" in socket_name:
            raise FileNotFoundError("there is no socket")
        with _short_path(self._folder) as folder:
            reader, writer = await asyncio.open_unix_connection(f"{folder}/{socket_name}", limit=STREAM_BYTES)
        writer.write(json.dumps(request).encode() + b"\n")
        return reader, writer

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = spawn(self._serve(reader, writer), name="client of a shared sandbox")
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)
        # a task cancelled before its first step does not run its finally block
        client.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            found: object = json.loads((await reader.readline()) or b"{}")
            if not isinstance(found, dict):
                raise ValueError("the request is not an object")
            request = {str(name): str(value) for name, value in cast("dict[object, object]", found).items()}
            if "end" in request:
                await self._machines.stop(request["end"])
                return
            machine = self._machines.find(request.get("thread", ""))
            if machine is None:
                writer.close()  # the client tries again meanwhile
                await self._machines.remove_if_lost(request.get("thread", ""))
                return
            if machine.is_remote:
                return
            writer.write(WELCOME)
            thread_id = request["thread"]

            def is_newest(fence: int) -> bool:
                try:
                    self.record_fence(thread_id, fence)
                except LeaseLost:
                    return False
                return fence >= self._fences.get(thread_id, 0)

            await ClientRelay(machine.connection, writer, is_newest).run(reader)
        except (asyncio.IncompleteReadError, OSError, ValueError, SandboxUnavailable) as error:
            log.debug("a client left a sandbox: %s", error)
        finally:
            writer.close()


@contextlib.contextmanager
def _short_path(folder: Path) -> Generator[str, None, None]:
    """Yields a short path of the folder: the address of a unix socket has about 100 characters at most."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


ENDS = (protocol.RESULT, protocol.ERROR)
STALE = {"code": "stale", "message": "another run uses this sandbox"}


class ClientRelay:
    """Relays the frames of one client.

    `is_newest` returns whether a run with that fence may still act. Readers have no fence."""

    def __init__(self, connection: Connection, writer: asyncio.StreamWriter, is_newest: Callable[[int], bool]) -> None:
        self._connection = connection
        self._writer = writer
        self._is_newest = is_newest
        self._fence = 0
        self._channels: dict[int, int] = {}

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Runs until the client leaves or the sandbox ends. Raises IncompleteReadError, OSError, ValueError and
        SandboxUnavailable."""
        self._writer.write(protocol.encode_json_frame(protocol.HELLO, 0, {"protocol": protocol.PROTOCOL_VERSION}))
        try:
            while True:
                header = await reader.readexactly(protocol.HEADER.size)
                length, kind, channel = protocol.HEADER.unpack(header)
                if length > protocol.payload_bytes_max(kind):
                    raise ValueError(f"a frame of kind {kind} with {length} bytes")
                payload = await reader.readexactly(length) if length else b""
                await self._take(kind, channel, payload)
        finally:
            self._connection.hold(self, is_held=False)
            for inside in self._channels.values():
                self._connection.forward_frame(protocol.CANCEL, inside, b"")
                self._connection.end_relayed_call(inside)

    async def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == protocol.HELLO:
            # the newest run first ends the commands that older runs still execute
            fence = self._record_fence(payload)
            if fence and self._is_newest(self._fence):
                await self._connection.call("fence", fence=self._fence)
        elif kind == protocol.OPEN:
            await self._open(channel, payload)
        elif (inside := self._channels.get(channel)) is not None:
            self._connection.forward_frame(kind, inside, payload)
            if kind == protocol.CANCEL:
                self._connection.end_relayed_call(inside)
                self._channels.pop(channel, None)

    async def _open(self, channel: int, payload: bytes) -> None:
        if parse_json_object(payload).get("op") == "fence":
            self._record_fence(payload)
        if self._fence and not self._is_newest(self._fence):
            self._writer.write(protocol.encode_json_frame(protocol.ERROR, channel, dict(STALE)))
            return
        self._channels[channel] = self._connection.open_call_for_process(payload, partial(self._deliver, channel))

    def _record_fence(self, payload: bytes) -> int:
        """Returns the fence of the run that uses the sandbox from now on; 0 if none does."""
        fence: object = json.loads(payload).get("fence", 0)
        if not isinstance(fence, int):
            raise ValueError("the fence is not a number")
        self._fence = max(self._fence, fence)
        self._connection.hold(self, is_held=fence > 0)
        return fence

    def _deliver(self, channel: int, kind: int, payload: bytes) -> None:
        if kind == protocol.CANCEL:
            self._writer.close()
            return
        self._writer.write(protocol.encode_frame(kind, channel, payload))
        if kind in ENDS and (inside := self._channels.pop(channel, None)) is not None:
            self._connection.end_relayed_call(inside)
