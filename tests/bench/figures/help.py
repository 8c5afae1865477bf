"""How long the command line takes to say what it can do."""

import subprocess
import sys
import time
from statistics import median

import psutil

from tests.bench.figure import Figure, note
from tests.bench.program import ENVIRONMENT
from tests.paths import REPOSITORY

TIMES = 5


async def help_seconds() -> float:
    """The median wall time of a whole process."""
    _show_help()
    before = psutil.Process().cpu_times()
    walls = [_show_help() for _ in range(TIMES)]
    after = psutil.Process().cpu_times()
    spent = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    note(f"help_s: {spent / TIMES:.3f} s CPU each")
    return median(walls)


def _show_help() -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "bots", "--help"]
    subprocess.run(command, cwd=REPOSITORY, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


HELP = Figure(name="help_s", unit="s", bound=0.4, measure=help_seconds)
