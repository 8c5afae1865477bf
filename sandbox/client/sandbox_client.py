"""The core's client of a thread's sandbox: shell, files, browser and ports over one connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal, Protocol, TypeVar, cast, get_args

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.json import JsonObject
from core.domain.network import NetworkLimits
from core.failpoints import Failpoint
from core.ports import CommandOutput, FileEntry, ShellSession
from sandbox.client.browser import BrowserClient
from sandbox.client.call import CallStream, replace_surrogates
from sandbox.client.connection import ANSWER_SECONDS, LOST, Connection
from sandbox.client.terminal_output import is_redrawn, render_terminal
from sandbox.inside.socket_relay import CONNECTED, EGRESS_PROXY_PORTS

EXECUTE = Failpoint("sandbox.execute")
INTERRUPT = Failpoint("sandbox.interrupt")
TERMINATE = Failpoint("sandbox.terminate")
TYPE = Failpoint("sandbox.type")
CONNECT = Failpoint("sandbox.connect")
WRITE = Failpoint("sandbox.write")
DELETE = Failpoint("sandbox.delete")

DELETE_SECONDS = 600.0
ENTRIES_MAX = 10_000
SESSIONS_MAX = 100
PATH_CHARACTERS_MAX = 4096
OUTPUT_CHARACTERS_MAX = 400_000

ShapeT = TypeVar("ShapeT")
FileKind = Literal["file", "folder", "link", "other"]


class Network(Protocol):
    """The network of one thread's sandbox, whose connections the provider judges."""

    @property
    def has_fetched(self) -> bool:
        """`core.ports.Sandbox.has_fetched`."""
        ...

    def store_limits(self, limits: NetworkLimits) -> None: ...

    def take_refused_hosts(self) -> tuple[str, ...]: ...


class SandboxClient:
    """Satisfies `core.ports.Sandbox`. `stop` ends the sandbox; `fence` is the fencing token of the run that opened it;
    `link` asks the provider for the address of a port. Without a `network`, connections are not judged."""

    def __init__(
        self,
        connection: Connection,
        *,
        fence: int,
        stop: Callable[[], Awaitable[None]],
        link: Callable[[int], Awaitable[str | None]] | None = None,
        network: Network | None = None,
    ) -> None:
        self._connection = connection
        self._fence = fence
        self._stop = stop
        self._link = link
        self._network = network
        self._shell = ShellClient(connection, fence=fence)
        self._files = FilesClient(connection, fence=fence)
        self._browser = BrowserClient(connection)

    @property
    def browser(self) -> BrowserClient:
        return self._browser

    @property
    def shell(self) -> "ShellClient":
        return self._shell

    @property
    def files(self) -> "FilesClient":
        return self._files

    @property
    def has_fetched(self) -> bool:
        return self._network is not None and self._network.has_fetched

    def limit_network(self, limits: NetworkLimits) -> None:
        if self._network is not None:
            self._network.store_limits(limits)

    def take_refused_hosts(self) -> tuple[str, ...]:
        return self._network.take_refused_hosts() if self._network is not None else ()

    async def connect(self, port: int) -> CallStream:
        if port in EGRESS_PROXY_PORTS:  # users must not reach the internet through a sandbox
            raise ToolError(f"Port {port} belongs to the sandbox itself. Use another port.")
        with CONNECT:
            stream = self._connection.stream("connect", port=port)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await stream.readexactly(len(CONNECTED))
            except TimeoutError as error:
                stream.close()
                raise ToolError(f"Port {port} of the sandbox does not answer.") from error
            except BaseException:
                stream.close()
                raise
        return stream

    async def find_port_url(self, port: int) -> str | None:
        return await self._link(port) if self._link else None

    async def interrupt(self) -> None:
        with INTERRUPT:
            await self._connection.call("interrupt", fence=self._fence)

    async def close(self) -> None:
        await self._stop()


class ShellClient:
    def __init__(self, connection: Connection, *, fence: int) -> None:
        self._connection = connection
        self._fence = fence

    async def execute(self, command: str, *, session: str, folder: str | None, timeout_seconds: float) -> CommandOutput:
        with EXECUTE:
            answer = await self._connection.call(
                "execute",
                answer_seconds=timeout_seconds + ANSWER_SECONDS,
                command=command,
                session=session,
                folder=None if folder is None else workspace_relative_path(folder),
                timeout_seconds=timeout_seconds,
                fence=self._fence,
            )
        return parse_answer(self._connection, answer, _output)

    async def check(
        self, session: str, *, timeout_seconds: float = 0, until: str = "", end_bytes: int | None = None
    ) -> CommandOutput:
        answer = await self._connection.call(
            "check",
            answer_seconds=timeout_seconds + ANSWER_SECONDS,
            session=session,
            timeout_seconds=timeout_seconds,
            until=until,
            end_bytes=end_bytes,
        )
        return parse_answer(self._connection, answer, _output)

    async def keep_running(self, session: str) -> None:
        await self._connection.call("keep_running", session=session, fence=self._fence)

    async def type_text(self, session: str, text: str) -> None:
        with TYPE:
            await self._connection.call("input", session=session, text=text, fence=self._fence)

    async def terminate(self, session: str, *, keeps_state: bool = False) -> None:
        with TERMINATE:
            await self._connection.call("terminate", session=session, keeps_state=keeps_state, fence=self._fence)

    async def sessions(self) -> tuple[ShellSession, ...]:
        return parse_answer(self._connection, await self._connection.call("sessions"), _sessions)


class FilesClient:
    def __init__(self, connection: Connection, *, fence: int) -> None:
        self._connection = connection
        self._fence = fence

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        left = length
        stream = self._connection.receive_pieces(
            "read", path=workspace_relative_path(path), offset=offset, length=length
        )
        async with aclosing(stream):
            async for piece in stream:
                if left is not None:
                    left -= len(piece)
                    if left < 0:
                        self._connection.mark_lost("more bytes of a file than were asked for")
                        raise SandboxUnavailable(LOST, detail="too many bytes")
                yield piece

    async def write(
        self, path: str, pieces: AsyncIterator[bytes], *, mode: int | None = 0o644, expected: str | None = None
    ) -> int:
        place = workspace_relative_path(path)
        with WRITE:
            answer = await self._connection.send_pieces(
                "write", pieces, path=place, mode=mode, expected=expected, fence=self._fence
            )
        return parse_answer(self._connection, answer, lambda body: require_size(body, "size_bytes"))

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        answer = await self._connection.call("list", path=workspace_relative_path(path))
        return parse_answer(self._connection, answer, _entries)

    async def delete(self, path: str) -> None:
        place = workspace_relative_path(path)
        with DELETE:
            await self._connection.call("delete", answer_seconds=DELETE_SECONDS, path=place, fence=self._fence)


def workspace_relative_path(path: str) -> str:
    """Returns the path relative to /workspace. Raises ToolError for an absolute path outside it."""
    if len(path) > PATH_CHARACTERS_MAX:
        raise ToolError("The path is too long.")
    if path == "/workspace" or path.startswith("/workspace/"):
        return path[len("/workspace/") :]
    if path.startswith("/"):
        raise ToolError("Paths are relative to /workspace; this one leads out of it.")
    return path


def parse_answer(connection: Connection, answer: JsonObject, shape: Callable[[JsonObject], ShapeT]) -> ShapeT:
    """Parses an answer. A malformed answer ends the connection, because the program can no longer be trusted."""
    try:
        return shape(answer)
    except ValueError as error:
        connection.mark_lost(f"a malformed answer: {error}")
        raise SandboxUnavailable(LOST, detail=f"a malformed answer: {error}") from error


def require_size(body: JsonObject, name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{name} is no size")
    return value


def require_number(body: JsonObject, name: str) -> float:
    value = body.get(name)
    if not isinstance(value, int | float) or not abs(value) < 1e15:
        raise ValueError(f"{name} is no number")
    return float(value)


def require_text(body: JsonObject, name: str, characters_max: int = PATH_CHARACTERS_MAX) -> str:
    value = body.get(name)
    if not isinstance(value, str) or len(value) > characters_max:
        raise ValueError(f"{name} is no fitting text")
    return replace_surrogates(value)


def require_objects(body: JsonObject, name: str, count_max: int) -> list[JsonObject]:
    values = body.get(name)
    if not isinstance(values, list) or len(values) > count_max:
        raise ValueError(f"{name} is no fitting list")
    if not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{name} holds something other than objects")
    return cast("list[JsonObject]", values)


def _output(body: JsonObject) -> CommandOutput:
    exit_code = body.get("exit_code")
    is_code = isinstance(exit_code, int) and not isinstance(exit_code, bool)
    if exit_code is not None and not (is_code and 0 <= cast("int", exit_code) <= 255):
        raise ValueError("exit_code is no exit code")
    path = None if body.get("output_path") is None else require_text(body, "output_path")
    others = body.get("also_running")
    if not isinstance(others, list) or len(others) > SESSIONS_MAX:
        raise ValueError("also_running is no fitting list")
    printed = require_text(body, "output", OUTPUT_CHARACTERS_MAX)
    return CommandOutput(
        session=require_text(body, "session"),
        output=render_terminal(printed),
        is_redrawn=is_redrawn(printed),
        exit_code=cast("int | None", exit_code),
        folder=require_text(body, "folder"),
        dropped_bytes=require_size(body, "dropped_bytes"),
        output_path=path,
        has_jobs=body.get("has_jobs") is True,
        is_found=body.get("is_found") is True,
        also_running=tuple(replace_surrogates(str(other)[:PATH_CHARACTERS_MAX]) for other in others),
    )


def _sessions(body: JsonObject) -> tuple[ShellSession, ...]:
    return tuple(
        ShellSession(
            name=require_text(session, "name"),
            command=require_text(session, "command"),
            is_running=session.get("is_running") is True,
            running_seconds=require_number(session, "running_seconds"),
        )
        for session in require_objects(body, "sessions", SESSIONS_MAX)
    )


def _entries(body: JsonObject) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(
            path=require_text(entry, "path", 3 * PATH_CHARACTERS_MAX),
            kind=_kind(entry),
            size_bytes=require_size(entry, "size_bytes"),
            modified_at=require_number(entry, "modified_at"),
        )
        for entry in require_objects(body, "entries", ENTRIES_MAX)
    )


def _kind(entry: JsonObject) -> FileKind:
    kind = entry.get("kind")
    if kind not in get_args(FileKind):
        raise ValueError("an unknown kind of file")
    return cast("FileKind", kind)
