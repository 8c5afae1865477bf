"""Runs the tests, and each failed one once more by itself: `python -m tests.run [--slow | --long] [pytest arguments]`.

by default  what takes a few minutes
--slow      also the slow stories: crashes, outages, browsers
--long      everything: every crash at every place, hundreds of random examples
--failed    only what failed in the last run; named tests run whatever their level

A test that fails in the run and passes by itself is FLAKY. Up to two of them leave the run green, because a loaded
machine can cause one; each is a defect all the same. The last lines name every failure and the command that repeats it.
"""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.paths import REPOSITORY
from tests.progress import Failure

LEVELS = {
    "": ["-m", "not slow and not long"],
    "--slow": ["-m", "not long", "--hypothesis-profile", "slow"],
    "--long": ["-m", "long or not long", "--hypothesis-profile", "long"],
}
FLAKY_MAX = 2
REPEATED_MAX = 10
"""With more failures the run is red in any case, and repeating them delays the news."""
LINES_MAX = 30
TEXT_LINES_MAX = 60
FAILURES_FILE = ".test-failures.json"


@dataclass(frozen=True)
class Selection:
    """What to run: the level's options, further arguments of pytest, and whether these name single tests."""

    level: Sequence[str]
    arguments: Sequence[str]
    is_named: bool

    def options(self) -> list[str]:
        is_single = self.is_named and len(self.arguments) == 1
        workers = ["-n", "0"] if is_single else ["-n", "auto", "--dist", "worksteal"]
        return [*self.level, *workers, *self.arguments]


def main(arguments: Sequence[str], folder: Path = REPOSITORY) -> int:
    """Returns the exit code: 0 if every test passed, if need be by itself."""
    path = folder / FAILURES_FILE
    selection = select(arguments, read_failures(path))
    if selection is None:
        say("No test failed in the last run.")
        return 0
    path.unlink(missing_ok=True)
    code = run_pytest([*selection.options(), f"--failures-file={path}"], folder)
    failures = read_failures(path)
    if code != 1 or not failures:
        return code
    repeated = failures if len(failures) <= REPEATED_MAX else []
    flaky = [one for one in repeated if passes_alone(one, selection, folder)]
    broken = [one for one in failures if one not in flaky]
    path.write_text(json.dumps([asdict(one) for one in [*broken, *flaky]]))
    for one in flaky:
        say(f"\n--- first failure of {one.test}", *one.text.splitlines()[-TEXT_LINES_MAX:])
    say(*summary(broken, flaky))
    return 1 if broken or len(flaky) > FLAKY_MAX else 0


def select(arguments: Sequence[str], last_failures: Sequence[Failure]) -> Selection | None:
    """Returns None if only the failures of the last run are wanted and there were none."""
    level, only_failed, rest = "", False, list(arguments)
    while rest and rest[0] in (*LEVELS, "--failed"):
        word = rest.pop(0)
        level, only_failed = (level, True) if word == "--failed" else (word, only_failed)
    if only_failed and not last_failures:
        return None
    if only_failed:
        rest += [one.test for one in last_failures]
    is_named = any("::" in one for one in rest)
    if not level and not is_named:
        say("Slow stories are left out; scripts/test --slow runs them, too.")
    options = LEVELS[level]
    if is_named:  # whatever its level
        options = ["-m", "long or not long", *options[2:]]
    return Selection(options, rest, is_named)


def run_pytest(arguments: Sequence[str], folder: Path) -> int:
    # -rfE: the failures are named last; what was not tested is said before them (tests/conftest.py)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "tests.progress", *arguments]
    return subprocess.run(command, cwd=folder, check=False).returncode


def passes_alone(failure: Failure, selection: Selection, folder: Path) -> bool:
    say(f"\nOnce more, by itself: {failure.test}")
    alone = ["-m", "long or not long", *selection.level[2:], "-n", "0", failure.test]
    return run_pytest(alone, folder) == 0


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
        for line in (
            f"{word}: {one.test}",
            f"    {one.reason}",
            f"    scripts/test {shlex.quote(one.test)}",
        )
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
