"""`scripts/mutants`: puts small faults into the program, one after the other, and names those that no test finds.

They are drawn at random: another comparison, operator or number, a removed statement or a swapped branch. Against each
run the cheapest default tests that call its function, and then random histories, in a copy of the repository.
"""

import argparse
import ast
import importlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests import default_run
from tests.mutants.faults import Fault, faults
from tests.mutants.reach import PATHS
from tests.paths import REPOSITORY
from tests.run import say

OWN_PROCESSES = ("chaos", "demo", "deploy", "e2e", "histories", "sandbox", "simulator")
"""Folders of tests whose program runs in other processes, where nobody notes the calls."""
TESTS_SECONDS, FAULT_SECONDS = 20, 60
KILLER, LIBRARIES = REPOSITORY / "killer", REPOSITORY / "libraries"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--faults", type=int, default=60, help="how many to draw")
    parser.add_argument("--seed", type=int, default=1, help="another one draws other faults")
    parser.add_argument(
        "--reach", type=Path, default=Path("reach.json"), help="which tests call what (its whole path); made if missing"
    )
    wanted = parser.parse_args()
    if not wanted.reach.exists():
        named = [name for name in default_run.options() if not any(f"/{part}/" in name for part in OWN_PROCESSES)]
        options = ["-q", "-n0", "-p", "tests.mutants.reach", f"--reach={wanted.reach}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *named], check=False)
    reach = sorted(json.loads(wanted.reach.read_text()).items(), key=lambda entry: entry[1][0])
    _import_libraries()
    files = [file for path in PATHS for file in sorted(Path(path).rglob("*.py"))]
    drawable = [(file, number) for file in files for number, _ in enumerate(_faults_of(file)[1])]
    survivors, killers = 0, set[str]()
    for number, (file, at) in enumerate(random.Random(wanted.seed).sample(drawable, wanted.faults), 1):
        source = file.read_text()
        tree, possible = _faults_of(file)
        possible[at].apply()
        file.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        tests = _tests_of(possible[at].function, reach)
        killer = _killer(tests)
        file.write_text(source)
        killers |= {killer} & {*tests}
        survivors += killer is None
        end = f"found by {killer}" if killer else f"SURVIVES {len(tests)} tests and the histories"
        say(f"{number:3} {possible[at].function}, {possible[at].what}", f"    {end}")
    say(f"{wanted.faults - survivors} of {wanted.faults} faults are found.")
    if killers and _code_of(partial(_run_tests, sorted(killers)), seconds=600):
        say(f"But this test fails without any: {KILLER.read_text()}")
        return 1
    return 0


def _faults_of(file: Path) -> tuple[ast.Module, list[Fault]]:
    tree = ast.parse(file.read_text())
    return tree, list(faults(tree, f"{file}:"))


def _tests_of(function: str, reach: Sequence[tuple[str, tuple[float, list[str]]]]) -> list[str]:
    """Returns the cheapest tests that call the function, or anything of its module if none of them calls it."""
    tests = [(test, seconds) for test, (seconds, functions) in reach if function in functions]
    if not tests:
        module = f"{function.partition(':')[0]}:"
        tests = [
            (test, seconds) for test, (seconds, called) in reach if any(name.startswith(module) for name in called)
        ]
    sums = accumulate(seconds for _, seconds in tests)
    return [test for (test, _), sum_of_seconds in zip(tests, sums, strict=True) if sum_of_seconds < TESTS_SECONDS]


def _killer(tests: Sequence[str]) -> str | None:
    """Returns what finds the fault that is in the program now: a test, the histories, or that there is no end."""
    KILLER.write_text("an import")
    code = _code_of(partial(_run_tests, tests)) if tests else 0
    if code:
        return KILLER.read_text() if code > 0 else "the time limit"
    return "the histories" if _code_of(_play_histories) else None


class _FirstFailure:
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            KILLER.write_text(report.nodeid)


def _run_tests(tests: Sequence[str]) -> int:
    options = ["-q", "-x", "-n0", f"--timeout={FAULT_SECONDS}", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*options, *tests], [default_run, _FirstFailure()])


def _play_histories() -> int:
    sys.argv = ["histories", "--histories", "100", "--processes", "1", "--failures", "1"]
    return importlib.import_module("tests.histories.__main__").main()


def _import_libraries() -> None:
    """Imports what the program needs of others, so that the processes of the faults have it already."""
    _code_of(_list_libraries)
    for name in LIBRARIES.read_text().split():
        with suppress(Exception):
            importlib.import_module(name)


def _list_libraries() -> int:
    importlib.import_module("tests.histories.__main__")
    importlib.import_module("bots.bootstrap.program")
    own = ("bots", "core", "sandbox", "simulator", "storage", "tests", "__")
    LIBRARIES.write_text("\n".join(name for name in sys.modules if not name.startswith(own)))
    return 0


def _code_of(call: Callable[[], int], *, seconds: float = 3 * FAULT_SECONDS) -> int:
    """Returns the exit code of the call in a process of its own; it is negative if the process had to be killed."""
    process = get_context("fork").Process(target=_enter, args=(call,))
    process.start()
    process.join(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return process.exitcode or 0


def _enter(call: Callable[[], int]) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (FAULT_SECONDS, FAULT_SECONDS))
    sys.dont_write_bytecode = True
    with Path("output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.exit(call())


if __name__ == "__main__":
    sys.exit(main())
