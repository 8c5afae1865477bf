"""Starts fakes that serve MCP in forks of a process that has imported the SDK, which takes a second of CPU each time.

`command_of` gives the command of such a fake. It starts a client (`python preloaded.py SOCKET PROGRAM ...`), which
passes its arguments, environment, folder and standard streams to the server. The server (`python -m
tests.fakes.preloaded SOCKET`, one for each test process) forks, and its child runs the program. The client forwards
signals, ends as the child does, and takes the child with it when it is killed.
"""

import json
import os
import signal
import socket
import sys

_REQUEST_BYTES_MAX = 1 << 16
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STARTS: dict[str, str] = {}
"""The path of the server's socket, once it runs."""


def command_of(program: str, *arguments: str) -> list[str]:
    """Returns a command that runs the Python file."""
    if "path" not in _STARTS:
        _STARTS["path"] = _start_server()
    return [sys.executable, "-I", "-S", __file__, _STARTS["path"], program, *arguments]


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
    assert len(text) < _REQUEST_BYTES_MAX
    for number in _FORWARDED:
        signal.signal(number, lambda number, _frame: server.sendall(bytes([number])))
    socket.send_fds(server, [text], [0, 1, 2])
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # the program's streams must end with the program
        os.dup2(nothing, stream)
    status = int(server.recv(32) or 70)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(path: str) -> list[str]:
    """Serves until the standard input ends. Returns the arguments of a program in each process that is to run one."""
    import select

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for programs
    os.write(1, b"ready\n")
    while listener in select.select([listener, 0], [], [])[0]:
        client = listener.accept()[0]
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return _supervise(client)
        client.close()
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("it has ended")


def _supervise(client: socket.socket) -> list[str]:
    """Forks the program and waits for it. Returns its arguments in the program's own process."""
    import select

    text, streams, _, _ = socket.recv_fds(client, _REQUEST_BYTES_MAX, 3)
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
