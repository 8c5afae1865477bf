"""A fake that is forked from a process which has imported the MCP SDK behaves like one that is started anew."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fakes.preloaded import command_of

REPORTS = """
import json, os, signal, sys, threading
told = [sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), os.environ.get("HOME"), __name__, sys.stdin.readline()]
print(json.dumps(told), os.getpid(), flush=True)
print("on stderr", file=sys.stderr, flush=True)
if sys.argv[1] == "waits":
    signal.pause()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "reports.py"
    path.write_text(REPORTS)
    return str(path)


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"GIVEN": "this"},
        text=True,
    )


def test_it_is_told_and_answers_the_same(program: str, tmp_path: Path) -> None:
    told: list[tuple[str, str, int]] = []
    for command in (command_of(program, "7", "ü x"), [sys.executable, program, "7", "ü x"]):
        with start(command, tmp_path) as process:
            out, error = process.communicate("said\n", timeout=30)
            told.append((out.rpartition(" ")[0], error, process.returncode))
    assert told[0] == told[1]
    assert told[0][1:] == ("on stderr\n", 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_its_command_ends_it(program: str, tmp_path: Path, number: signal.Signals) -> None:
    with start(command_of(program, "waits"), tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        child = psutil.Process(int(process.stdout.readline().rpartition(" ")[2]))
        assert child.pid != process.pid
        os.kill(process.pid, number)
        assert process.wait(30) == -number
        child.wait(30)
