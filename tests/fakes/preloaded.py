"""Runs fakes that serve MCP in forks of a process that has imported the SDK; importing it takes a second of CPU.

The program under test starts these fakes by a command, so tests/fork_server.py, which a test calls, cannot start them.
`command_of` returns the command: a client of a server, one for each test process. The client passes its arguments,
environment, folder and standard streams, the server forks, and the fork runs the fake. The client forwards signals to
the fake and ends with its exit status; if the client is killed, the fake is killed, too.
"""

import json
import os
import signal
import socket
import sys
from functools import cache

_LENGTH_BYTES = 4
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def command_of(program: str, *arguments: str) -> list[str]:
    """Returns a command that runs the Python file `program` with the arguments."""
    return [sys.executable, "-I", "-S", __file__, _start_server(), program, *arguments]


@cache
def _start_server() -> str:
    """Starts the server, which ends with this process. Returns the path of its socket once it listens."""
    import atexit
    import subprocess
    import tempfile

    from tests.paths import REPOSITORY

    folder = tempfile.TemporaryDirectory(prefix="thmcp-")
    path = f"{folder.name}/socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.preloaded", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline(), "it has not started"

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
    return path


def run_client(path: str, arguments: list[str]) -> None:
    """Has the server run the program, and ends as the program does."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    request = [arguments, os.getcwd(), dict(os.environ)]  # noqa: TID251, PTH109 - tests
    text = json.dumps(request).encode()
    socket.send_fds(server, [len(text).to_bytes(_LENGTH_BYTES, "big")], [0, 1, 2])
    server.sendall(text)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _frame: server.sendall(bytes([number])))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # so that the streams end with the program
        os.dup2(nothing, stream)
    status = int(server.recv(32) or 70)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(path: str) -> list[str]:
    """Forks a process for each client until the standard input ends. Returns only in a fork that is to run a program,
    and returns its arguments."""
    import select

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the supervisors need not be waited for
    os.write(1, b"ready\n")
    while listener in select.select([listener, 0], [], [])[0]:
        client = listener.accept()[0]
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return _supervise(client)
        client.close()
    os.killpg(0, signal.SIGKILL)  # itself, too
    raise AssertionError


def _supervise(client: socket.socket) -> list[str]:
    """Forks the process that is to run the program, and reports its end to the client. Returns as `serve` does."""
    import select

    length, streams, _, _ = socket.recv_fds(client, _LENGTH_BYTES, 3)
    text = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    arguments, folder, environment = json.loads(text)
    pid = os.fork()
    if not pid:
        client.close()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()  # noqa: TID251 - tests
        os.environ.update(environment)  # noqa: TID251 - tests
        return arguments
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    ended = os.pidfd_open(pid)
    while ended not in (ready := select.select([ended, client], [], [])[0]):
        assert client in ready
        number = client.recv(1)
        os.kill(pid, number[0] if number else signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        client.sendall(str(status).encode())
    finally:
        os._exit(0)


def main() -> None:
    if __spec__ is None:
        run_client(sys.argv[1], sys.argv[2:])
    import gc
    import runpy
    from pathlib import Path

    import mcp.server.mcpserver  # noqa: F401 - what takes long
    import uvicorn  # noqa: F401

    import core.mcp.own_server  # noqa: F401

    gc.freeze()
    sys.argv[:] = serve(sys.argv[1])
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
