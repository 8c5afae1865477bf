"""A sandbox in memory: files in a dictionary, commands from a table of canned scripts."""

import asyncio
import posixpath
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from core.domain.errors import FileChanged, FileMissing, LeaseLost, SandboxUnavailable, ToolError
from core.domain.network import NetworkLimits
from core.ports import NO_FILE, Browser, CommandOutput, FileEntry, PortStream, ShellSession, file_version
from sandbox.client.sandbox_client import workspace_relative_path
from sandbox.running_sandboxes import check_thread_id


@dataclass(slots=True)
class Terminal:
    """The terminal of a script, which can print, change the folder, and read and write files."""

    folder: str
    files: dict[str, bytes]
    printed: list[str] = field(default_factory=list[str])

    def print(self, text: str) -> None:
        self.printed.append(text)


Script = Callable[[Terminal], Awaitable[int]]
"""Runs a command and returns its exit code. Cancelled if the command is interrupted or terminated."""


def printing(text: str, exit_code: int = 0) -> Script:
    async def script(terminal: Terminal) -> int:
        terminal.print(text)
        return exit_code

    return script


async def hanging(terminal: Terminal) -> int:
    """Prints `started` and runs until it is cancelled."""
    terminal.print("started\n")
    await asyncio.Event().wait()
    return 0


@dataclass(slots=True)
class _Session:
    terminal: Terminal
    command: str = ""
    exit_code: int | None = 0
    started_at: float = 0.0
    task: asyncio.Task[None] | None = None
    is_kept: bool = False

    async def run(self, script: Script) -> None:
        try:
            self.exit_code = await script(self.terminal)
        except asyncio.CancelledError:
            self.exit_code = 130

    async def end(self) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])
            if self.exit_code is None:  # the task was cancelled before it began
                self.exit_code = 130


class MemorySandbox:
    """A sandbox in memory, which implements the ports for its shell and its files itself."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.limits: list[NetworkLimits] = []
        self.refused_hosts: tuple[str, ...] = ()
        self.scripts = scripts
        self.content: dict[str, bytes] = {}
        self.folders: set[str] = {""}
        self.commands: list[str] = []
        self.fence = 0
        self.is_lost = False
        self._sessions: dict[str, _Session] = {}

    async def execute(
        self, command: str, *, session: str, folder: str | None, timeout_seconds: float, fence: int
    ) -> CommandOutput:
        self._check_alive()
        self._refuse_stale(fence)
        base = session.partition("#")[0]
        names = (base if number == 1 else f"{base}#{number}" for number in count(1))
        session = next(one for one in names if one not in self._sessions or self._sessions[one].exit_code is not None)
        known = self._sessions.setdefault(session, _Session(Terminal("/workspace", self.content)))
        if folder is not None:
            if workspace_relative_path(folder).strip("/") not in self.folders:
                raise ToolError(f"There is no folder {folder}.")
            known.terminal.folder = posixpath.join("/workspace", workspace_relative_path(folder)).rstrip("/")
        self.commands.append(command)
        known.command, known.exit_code, known.started_at = command, None, time.monotonic()
        known.is_kept = False
        known.terminal.printed.clear()
        missing = printing(f"bash: {command.split(' ')[0]}: command not found\n", 127)
        script = self.scripts.get(command, missing)
        known.task = asyncio.ensure_future(known.run(script))
        return await self.check(session, timeout_seconds=timeout_seconds)

    async def check(
        self, session: str, *, timeout_seconds: float = 0, until: str = "", end_bytes: int | None = None
    ) -> CommandOutput:
        known = self._known(session)
        if known.task is not None and not known.task.done() and timeout_seconds > 0:
            await asyncio.wait([known.task], timeout=timeout_seconds)
        self._check_alive()
        output = "".join(known.terminal.printed)
        base = session.partition("#")[0]
        return CommandOutput(
            session=session,
            output=output if end_bytes is None else output[-end_bytes:],
            exit_code=known.exit_code,
            folder=known.terminal.folder,
            is_found=bool(until) and until in output,
            also_running=tuple(
                name
                for name, other in self._sessions.items()
                if name.partition("#")[0] == base and name != session and other.exit_code is None
            ),
        )

    async def keep_running(self, session: str, *, fence: int) -> None:
        self._check_alive()
        self._refuse_stale(fence)
        if session in self._sessions:
            self._sessions[session].is_kept = True

    async def raise_fence(self, fence: int) -> None:
        self.fence = fence
        for known in self._sessions.values():
            if not known.is_kept:
                await known.end()

    def _refuse_stale(self, fence: int) -> None:
        if fence < self.fence:
            raise LeaseLost("another run uses this sandbox")

    async def type_text(self, session: str, text: str, *, fence: int) -> None:
        """Checks that a command is running. Discards the text, because scripts read no input."""
        self._refuse_stale(fence)
        if self._known(session).exit_code is not None:
            raise ToolError("No command is running in this session that could read input.")

    async def terminate(self, session: str, *, keeps_state: bool = False, fence: int) -> None:
        self._refuse_stale(fence)
        await self._known(session).end()
        del self._sessions[session]

    async def sessions(self) -> tuple[ShellSession, ...]:
        self._check_alive()
        now = time.monotonic()
        return tuple(
            ShellSession(
                name=name,
                command=known.command,
                is_running=known.exit_code is None,
                running_seconds=now - known.started_at if known.exit_code is None else 0.0,
            )
            for name, known in self._sessions.items()
        )

    async def interrupt(self, *, fence: int) -> None:
        self._refuse_stale(fence)
        self._check_alive()
        for known in self._sessions.values():
            await known.end()

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        name = self._name(path)
        await asyncio.sleep(0)
        if name not in self.content:
            raise FileMissing("There is no such file or folder.")
        content = self.content[name][offset:]
        yield content if length is None else content[:length]

    async def write(
        self,
        path: str,
        pieces: AsyncIterator[bytes],
        *,
        mode: int | None = 0o644,
        expected: str | None = None,
        fence: int,
    ) -> int:
        self._refuse_stale(fence)
        name = self._name(path)
        if name in self.folders:
            raise ToolError("The path is a folder.")
        whole = b"".join([piece async for piece in pieces])
        await asyncio.sleep(0)
        self._refuse_stale(fence)
        now = file_version(self.content[name]) if name in self.content else NO_FILE
        if expected not in (None, now):
            raise FileChanged("The file has changed meanwhile.")
        self.content[name] = whole
        while name := posixpath.dirname(name):
            self.folders.add(name)
        return len(whole)

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        await asyncio.sleep(0)
        name = self._name(path)
        if name in self.content:
            return (self._entry(name),)
        if name not in self.folders:
            raise FileMissing("There is no such file or folder.")
        everything = [*self.content, *(self.folders - {""})]
        inside = [other for other in everything if posixpath.dirname(other) == name]
        return tuple(self._entry(other) for other in sorted(inside))

    async def delete(self, path: str, *, fence: int) -> None:
        self._refuse_stale(fence)
        name = self._name(path)
        if not name or (name not in self.content and name not in self.folders):
            raise FileMissing("There is no such file or folder.")
        for other in [*self.content]:
            if other == name or other.startswith(name + "/"):
                del self.content[other]
        self.folders -= {f for f in self.folders if f == name or f.startswith(name + "/")}

    def limit_network(self, limits: NetworkLimits) -> None:
        self.limits.append(limits)

    def take_refused_hosts(self) -> tuple[str, ...]:
        taken, self.refused_hosts = self.refused_hosts, ()
        return taken

    async def stop(self) -> None:
        self.is_lost = True
        for known in self._sessions.values():
            await known.end()
        self._sessions.clear()

    def _entry(self, name: str) -> FileEntry:
        is_file = name in self.content
        size = len(self.content[name]) if is_file else 0
        kind = "file" if is_file else "folder"
        return FileEntry(path=name, kind=kind, size_bytes=size, modified_at=0.0)

    def _name(self, path: str) -> str:
        self._check_alive()
        name = posixpath.normpath(workspace_relative_path(path) or ".")
        if name == ".." or name.startswith("../"):
            raise ToolError("The path leads out of /workspace.")
        return "" if name == "." else name

    def _known(self, session: str) -> _Session:
        self._check_alive()
        if session not in self._sessions:
            raise ToolError(f"There is no session {session!r}.")
        return self._sessions[session]

    def _check_alive(self) -> None:
        if self.is_lost:
            raise SandboxUnavailable("The sandbox stopped working.")


class _Shell:
    def __init__(self, sandbox: MemorySandbox, fence: int) -> None:
        self._sandbox = sandbox
        self._fence = fence
        self.check = sandbox.check
        self.sessions = sandbox.sessions

    async def execute(self, command: str, *, session: str, folder: str | None, timeout_seconds: float) -> CommandOutput:
        return await self._sandbox.execute(
            command, session=session, folder=folder, timeout_seconds=timeout_seconds, fence=self._fence
        )

    async def keep_running(self, session: str) -> None:
        await self._sandbox.keep_running(session, fence=self._fence)

    async def type_text(self, session: str, text: str) -> None:
        await self._sandbox.type_text(session, text, fence=self._fence)

    async def terminate(self, session: str, *, keeps_state: bool = False) -> None:
        await self._sandbox.terminate(session, keeps_state=keeps_state, fence=self._fence)


class _Files:
    def __init__(self, sandbox: MemorySandbox, fence: int) -> None:
        self.read, self.list = sandbox.read, sandbox.list
        self.write = partial(sandbox.write, fence=fence)
        self.delete = partial(sandbox.delete, fence=fence)


class _Opened:
    has_fetched = False

    def __init__(self, sandbox: MemorySandbox, fence: int) -> None:
        self.files = _Files(sandbox, fence)
        self.shell = _Shell(sandbox, fence)
        self.limit_network, self.take_refused_hosts = sandbox.limit_network, sandbox.take_refused_hosts
        self.interrupt = partial(sandbox.interrupt, fence=fence)
        self.close = sandbox.stop

    @property
    def browser(self) -> Browser:
        raise ToolError("There is no browser in this sandbox.")

    async def connect(self, port: int) -> PortStream:
        raise ToolError(f"Nothing listens on port {port}.")

    async def find_port_url(self, port: int) -> None:
        return None


class MemorySandboxes:
    """A `SandboxProvider`; `machines` are the threads' sandboxes, for a test to look into."""

    name = "memory"

    def __init__(self, scripts: dict[str, Script] | None = None) -> None:
        self.scripts = scripts or {}
        self.machines: dict[str, MemorySandbox] = {}

    async def open(self, thread_id: str, *, fence: int) -> _Opened:
        check_thread_id(thread_id)
        machine = self.machines.setdefault(thread_id, MemorySandbox(self.scripts))
        machine.is_lost = False
        if fence > machine.fence:
            await machine.raise_fence(fence)
        return _Opened(machine, fence)

    def release(self, thread_id: str) -> None:
        del thread_id  # nothing to do, because files are saved as they are written

    async def destroy(self, thread_id: str) -> None:
        machine = self.machines.pop(thread_id, None)
        if machine is not None:
            await machine.stop()

    async def close(self) -> None:
        for machine in self.machines.values():
            await machine.stop()
