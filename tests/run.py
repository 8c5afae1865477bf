"""Runs the tests, and each failed one once more by itself: `python -m tests.run [--all] [--failed] [pytest arguments]`.

by default  see tests/default_run.py
PATH        every test of this file or folder, or a single test
--all       every test, with hundreds of random examples for each property
--failed    only what failed in the last run

A test that fails in the run and passes by itself is FLAKY. Up to two of them leave the run green, because a loaded
machine can cause one; each is a defect all the same. The last lines name every failure and the command that repeats it.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests import default_run
from tests.paths import REPOSITORY
from tests.progress import Failure

PRODUCT = "bots|core|sandbox|simulator|storage"
FLAKY_MAX = 2
REPEATED_MAX = 10
"""With more failures the run is red in any case, and repeating them delays the news."""
LINES_MAX = 30
TEXT_LINES_MAX = 60
FAILURES_FILE = ".test-failures.json"


def main(arguments: Sequence[str], folder: Path = REPOSITORY) -> int:
    """Returns the exit code: 0 if every test passed, if need be by itself."""
    path = folder / FAILURES_FILE
    is_all = "--all" in arguments
    rest = [path for one in arguments if one not in ("--all", "--failed") for path in paths_for(one, folder)]
    if "--failed" in arguments:
        failed = [one.test for one in read_failures(path)]
        if not failed:
            say("No test failed in the last run.")
            return 0
        rest += failed
    path.unlink(missing_ok=True)
    profile = ["--hypothesis-profile", "all"] if is_all else []
    selection = [] if is_all or any(map(is_path, rest)) else default_run.options()
    options = [*profile, *workers(rest, is_all=is_all), *selection, *rest]
    code = run_pytest([*options, f"--failures-file={path}"], folder)
    failures = read_failures(path)
    if code != 1 or not failures:
        return code
    repeated = failures if len(failures) <= REPEATED_MAX else []
    flaky = [one for one in repeated if passes_alone(one, profile, folder)]
    broken = [one for one in failures if one not in flaky]
    path.write_text(json.dumps([asdict(one) for one in [*broken, *flaky]]))
    for one in flaky:
        say(f"\n--- first failure of {one.test}", *one.text.splitlines()[-TEXT_LINES_MAX:])
    say(*summary(broken, flaky))
    return 1 if broken or len(flaky) > FLAKY_MAX else 0


def paths_for(argument: str, folder: Path = REPOSITORY) -> list[str]:
    """Returns the test files that import the module of the product which the argument names, or else the argument."""
    if not re.fullmatch(rf"({PRODUCT})/[\w/]+\.py", argument):
        return [argument]
    package, _, name = argument.removesuffix(".py").removesuffix("/__init__").replace("/", ".").rpartition(".")
    imports = re.compile(
        rf"^ *from {re.escape(f'{package}.{name}')} import|^ *from {re.escape(package)} import\b.*\b{name}\b",
        re.MULTILINE,
    )
    files = sorted((folder / "tests").rglob("test_*.py"))
    found = [str(file.relative_to(folder)) for file in files if imports.search(file.read_text("utf-8"))]
    if not found:
        sys.exit(f"No test file imports {argument}. Stories call it: scripts/test")
    return found


def is_path(argument: str) -> bool:
    """Whether the argument names a file, a folder or a single test, and is not an option or its value."""
    return re.fullmatch(r"(?!-)(tests(/[^:]*)?|[^:]+\.py|[^:]+::.+)", argument) is not None


def workers(arguments: Sequence[str], *, is_all: bool) -> list[str]:
    """Half of the time of a test is waiting for programs, and more of it in stories."""
    if len(arguments) == 1 and "::" in arguments[0]:
        return ["-n", "0"]
    return ["-n", str((3 if is_all else 2) * (os.cpu_count() or 2)), "--dist", "worksteal"]


def run_pytest(arguments: Sequence[str], folder: Path) -> int:
    # -rfE: the failures are named last; what was not tested is said before them (tests/conftest.py)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "tests.progress", *arguments]
    return subprocess.run(command, cwd=folder, check=False).returncode


def passes_alone(failure: Failure, profile: Sequence[str], folder: Path) -> bool:
    say(f"\nOnce more, by itself: {failure.test}")
    return run_pytest([*profile, "-n", "0", failure.test], folder) == 0


def read_failures(path: Path) -> list[Failure]:
    """Returns the failures that `tests.progress` wrote, one for each test."""
    if not path.exists():
        return []
    found = [Failure(**one) for one in json.loads(path.read_text())]
    return [one for at, one in enumerate(found) if one.test not in {x.test for x in found[:at]}]


def summary(broken: Sequence[Failure], flaky: Sequence[Failure]) -> list[str]:
    """Returns the last lines of a run: each failed test with its reason and the command that runs it by itself."""
    named = [*(("FAILED", one) for one in broken), *(("FLAKY", one) for one in flaky)]
    shown = named[: (LINES_MAX - 3) // 3]
    lines = [
        line
        for word, one in shown
        for line in (f"{word}: {one.test}", f"    {one.reason}", f"    scripts/test {shlex.quote(one.test)}")
    ]
    if len(named) > len(shown):
        lines.append(f"and {len(named) - len(shown)} more")
    count = f"{len(broken)} broken, {len(flaky)} flaky (more than {FLAKY_MAX} flaky tests are red)"
    return ["", *lines, f"{count}. Again: scripts/test --failed"]


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # ends pytest, too
    sys.exit(main(sys.argv[1:]))
