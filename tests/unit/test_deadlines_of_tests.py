"""A test waits for an event, for as long as a slow machine may need. A shorter deadline fails for no other reason."""

import re
from collections.abc import Iterator

import pytest

from tests.paths import REPOSITORY

SECONDS_MIN = 30
MEANT_TO_PASS_SECONDS_MAX = 1
"""A deadline up to this is the subject of its test, or is tried again."""
DEADLINE = re.compile(
    r"(?:asyncio\.timeout\(|settimeout\(|\bwait_for\(.*, |monotonic\(\) \+ |(?:until|eventually)\(.*seconds=)"
    r"(\d+(?:\.\d+)?)(?=[,)]|$)"
)
MEASUREMENTS = ("tests/bench/", "tests/load/")


def short_deadlines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for found in DEADLINE.finditer(line):
            seconds = float(found[1])
            if MEANT_TO_PASS_SECONDS_MAX < seconds < SECONDS_MIN:
                yield f"{number}: {found[0]}"


def test_no_deadline_is_shorter_than_a_slow_machine_needs() -> None:
    files = sorted((REPOSITORY / "tests").rglob("*.py"))
    names = [path.relative_to(REPOSITORY).as_posix() for path in files]
    found = [
        f"{name}:{one}"
        for name, path in zip(names, files, strict=True)
        if not name.startswith(MEASUREMENTS)
        for one in short_deadlines(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "async with asyncio.timeout({}):",
        "caller.settimeout({})",
        "await asyncio.wait_for(ended.wait(), {})",
        "deadline = time.monotonic() + {}",
        "await stage.until(lambda: taken, 'it is taken', seconds={})",
    ],
)
def test_a_short_deadline_is_found(line: str) -> None:
    """The lines are filled in here, so that the rule does not find them."""
    assert [bool([*short_deadlines(line.format(text))]) for text in ("5", "29.5", "30", "0.2")] == [
        True,
        True,
        False,
        False,
    ]
