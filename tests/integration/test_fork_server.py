"""A program that is forked from the fork server behaves as one that is started anew."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.program import Program
from tests.fork_server import ForkedProcess, start_program
from tests.paths import REPOSITORY

ENVIRONMENT = {
    **{name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ},  # noqa: TID251 - tests
    "PYTHONPATH": str(REPOSITORY),
    "PYTHONUNBUFFERED": "1",
}
SERVING = {
    "THREADHAND_API_TOKEN": "secret",
    "THREADHAND_HTTP_PORT": "0",
    "THREADHAND_MODEL": "threadhand/scripted",
    "THREADHAND_LLM_BASE_URL": "http://127.0.0.1:1/v1",
    "THREADHAND_LLM_API_KEY": "scripted",
    "THREADHAND_SANDBOX": "unsafe-process",
}
ORPHAN = """
import sys, time
from pathlib import Path
from tests.integration.test_fork_server import started_serving
print(started_serving(Path(sys.argv[1]), is_forked=True).pid, flush=True)
time.sleep(60)
"""


@contextmanager
def started(folder: Path, *arguments: str, **environment: str) -> Iterator[ForkedProcess]:
    """Starts the program with a pipe as its standard input and the file `output` in its folder for its output."""
    stdin, typing = os.pipe()
    with (folder / "output").open("wb") as output, os.fdopen(stdin, "rb"), os.fdopen(typing, "wb"):
        process = start_program(
            arguments,
            folder=folder,
            environment={**ENVIRONMENT, "HOME": str(folder), **environment},
            stdin=stdin,
            stdout=output.fileno(),
            stderr=output.fileno(),
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def outcome(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    with started(folder, *arguments, **environment) as process:
        return process.wait(30), (folder / "output").read_text()


def command_line(process: ForkedProcess) -> list[str]:
    return Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[1:3]


def started_serving(folder: Path, *, is_forked: bool) -> Program:
    program = Program(folder, {**SERVING, "THREADHAND_DATA_DIR": str(folder)})
    program.is_forked = is_forked
    program.start()
    deadline = time.monotonic() + 30
    while "listens on" not in program.log():
        assert program.is_running, program.log()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return program


def test_the_environment_is_the_given_one(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, "up", THREADHAND_MODLE="x")
    assert code == 2
    assert "THREADHAND_MODEL" in said
    code, said = outcome(tmp_path, "up", THREADHAND_SANDBOX="nonsense")
    assert code == 2
    assert "THREADHAND_MODLE" not in said


def test_signals_pipes_and_session_are_those_of_a_new_start(tmp_path: Path) -> None:
    def facts(program: Program) -> tuple[object, ...]:
        status = Path(f"/proc/{program.pid}/status").read_text().splitlines()
        files = Path(f"/proc/{program.pid}/fd").iterdir()
        return (
            [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))],
            sum("pipe:" in str(file.readlink()) for file in files),
            os.getsid(program.pid) == os.getpgid(program.pid) == program.pid,
            Path(f"/proc/{program.pid}/cwd").readlink() == program.folder,
        )

    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    forked = started_serving(tmp_path / "1", is_forked=True)
    anew = started_serving(tmp_path / "2", is_forked=False)
    try:
        found, expected = facts(forked), facts(anew)
    finally:
        forked.kill()
        anew.kill()
    assert found == expected
    assert expected[2:] == (True, True)


@pytest.mark.parametrize("name", ["TZ", "AIOHTTP_NO_EXTENSIONS", "LD_PRELOAD"])
def test_a_variable_that_is_read_before_or_during_the_imports_starts_the_program_anew(
    tmp_path: Path, name: str
) -> None:
    with started(tmp_path, "mcp", THREADHAND_DATA_DIR=str(tmp_path)) as process:
        assert command_line(process) == ["-m", "tests.fork_server"]
    with started(tmp_path, "mcp", THREADHAND_DATA_DIR=str(tmp_path), **{name: ""}) as process:
        deadline = time.monotonic() + 30
        while process.poll() is None and command_line(process) != ["-m", "bots"]:
            assert time.monotonic() < deadline
        assert process.poll() is None


def test_the_server_ends_if_its_client_dies_in_the_middle_of_a_request(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], cwd=REPOSITORY, env={**ENVIRONMENT, "HOME": str(tmp_path)}
        )
    with ours:
        ours.sendall(b"{")
    assert process.wait(60) == 0


def test_programs_end_with_the_test_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
    ) as test_process:
        assert test_process.stdout is not None
        pid = int(test_process.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        test_process.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
