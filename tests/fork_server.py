"""Starts the program in forks of a process that has imported it already, which saves most of the CPU time of a start.

`start_program` is the client; `python -m tests.fork_server SOCKET` is the server, one for each test process. The server
has only imported modules: it has no threads, no event loop and no connections. It kills its children and ends when the
test process ends.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
import wsgiref.handlers  # noqa: F401 - copies the whole environment when imported, so it is imported before the recording
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY

PRELOADED = (
    "alembic.command",
    "alembic.config",
    "bots.bootstrap.program",
    "bots.discord.app",
    "bots.slack.app",
    "sandbox.unsafe_process",
)
"""Modules of nearly every program under test. Libraries that few tests use (litellm, modal) are left to the child."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "COVERAGE_PROCESS_START")
READ_BY_THE_INTERPRETER = ("PYTHON", "LD_", "COVERAGE_", "LANG", "LC_", "TZ", "MALLOC_", "OPENSSL_")
"""Prefixes of variables that the interpreter or a library in C reads before the first line of Python."""
MAY_DIFFER = frozenset({"HOME"})
"""Read during import only for default folders of stores that the program does not use (slack_sdk, slack_bolt)."""
_REQUEST_BYTES_MAX = 1 << 16


class ForkedProcess:
    """A started program, like `subprocess.Popen`. The server reports its exit status through a pipe."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Returns the exit code, or the negative number of the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._read_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python -m bots", timeout or 0)
            self._read_status()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_status(self) -> None:
        said = os.read(self._status, 32)
        os.close(self._status)
        self.returncode = -signal.SIGKILL
        assert said, "the fork server ended before the program"
        self.returncode = int(said)


def start_program(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    prefix: Sequence[str] = (),
    is_forked: bool = True,
) -> ForkedProcess:
    """Starts `python -m bots` in a session of its own, with the given open files as its standard streams.

    The program is forked from the server. With a command `prefix`, without `is_forked`, or with an environment in which
    its imports could have another result, it is started anew instead.
    """
    status, status_of_server = os.pipe()
    command = [*prefix, sys.executable, "-m", "bots", *arguments]
    request = {
        "arguments": list(arguments),
        "folder": str(folder),
        "environment": dict(environment),
        "command": [] if is_forked and not prefix else command,
    }
    server = _server()
    socket.send_fds(server, [json.dumps(request).encode()], [stdin, stdout, stderr, status_of_server])
    server.sendall(b"\n")
    os.close(status_of_server)
    pid = server.recv(32)
    assert pid, "the fork server ended"
    return ForkedProcess(int(pid), status)


@cache
def _server() -> socket.socket:
    """Starts the server of this test process."""
    ours, theirs = socket.socketpair()
    known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}  # noqa: TID251 - tests
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**known, "HOME": str(Path.home()), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class ForkServer:
    """The server: `serve` returns in each forked child, and never in the server itself."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._ended, self._wakeup = os.pipe()
        for end in (self._ended, self._wakeup):
            os.set_blocking(end, False)
        self._read: set[str] = set()
        self._children: dict[int, int] = {}

    def preload(self) -> None:
        """Imports the program, and records the variables of the environment that its modules read meanwhile."""
        environment = type(os.environ)  # noqa: TID251 - as above
        read_variable = environment.__getitem__
        read = self._read

        def record(self: Any, key: str) -> str:
            read.add(key)
            return read_variable(self, key)

        environment.__getitem__ = record
        try:
            for module in PRELOADED:
                import_module(module)
        finally:
            environment.__getitem__ = read_variable
        gc.collect()
        gc.freeze()

    def serve(self) -> list[str]:
        """Forks a child for each request. Returns the child's command-line arguments, in the child."""
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._client, self._ended], [], [])
            if self._ended in ready:
                with suppress(BlockingIOError):
                    os.read(self._ended, 1024)
                self._report_ended()
            if self._client in ready:
                request, files = self._receive()
                pid = os.fork()
                if not pid:
                    return self._become(request, files)
                *streams, self._children[pid] = files
                for stream in streams:
                    os.close(stream)
                self._client.sendall(str(pid).encode())

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        text, files, _, _ = socket.recv_fds(self._client, _REQUEST_BYTES_MAX, 4)
        while text and not text.endswith(b"\n"):
            more = self._client.recv(_REQUEST_BYTES_MAX)
            text = more and text + more  # the client may have died in the middle of a request
        if not text:
            for child in self._children:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
            os._exit(0)
        return json.loads(text), files

    def _report_ended(self) -> None:
        for pid in tuple(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                pipe = self._children.pop(pid)
                with suppress(BrokenPipeError):
                    os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(pipe)

    def _become(self, request: dict[str, Any], files: list[int]) -> list[str]:
        """Makes this child what a program is at its start."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
        for file in (*files, *self._children.values(), self._ended, self._wakeup):
            os.close(file)
        self._client.close()
        os.setsid()
        os.chdir(request["folder"])
        environment: dict[str, str] = request["environment"]
        if command := request["command"] or self._command_for(environment, request["arguments"]):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; exec passes that on
            os.execvpe(command[0], command, environment)  # noqa: S606 - made above
        os.environ.clear()  # noqa: TID251
        os.environ.update(environment)  # noqa: TID251
        sys.path[0] = request["folder"]
        return request["arguments"]

    def _command_for(self, environment: Mapping[str, str], arguments: list[str]) -> list[str]:
        """Returns the command of a new start if the imports could have another result there; otherwise []."""
        ours = dict(os.environ)  # noqa: TID251
        names = self._read | {name for name in (*environment, *ours) if name.startswith(READ_BY_THE_INTERPRETER)}
        if all(environment.get(name) == ours.get(name) for name in names - MAY_DIFFER):
            return []
        return [sys.executable, "-m", "bots", *arguments]


def run_server(client: socket.socket) -> list[str]:
    server = ForkServer(client)
    server.preload()
    try:
        return server.serve()
    except BaseException:
        traceback.print_exc()
        os._exit(70)


if __name__ == "__main__":
    sys.argv[1:] = run_server(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("bots", run_name="__main__", alter_sys=True)
