"""What holds for every test: properties are tried the same way each time, so that a failure comes back."""

import gc
from collections import Counter

import pytest
from hypothesis import settings

gc.disable()  # until the tests are collected (tests/leaks.py): nearly all that is made meanwhile stays

pytest_plugins = ("tests.databases", "tests.leaks", "tests.payload_recorder")

# what tells the stories asserts too, and is imported by tests of several folders
pytest.register_assert_rewrite("tests.chaos.report_story", "tests.chaos.stories")

settings.register_profile("short", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("all", derandomize=True, deadline=None, max_examples=400)
settings.load_profile("short")


LONG_TESTS = ("histories/", "integration/demo/", "integration/simulator/page/", "integration/bots/test_eval.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with tests that take half a minute, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: not any(part in item.path.as_posix() for part in LONG_TESTS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One loud line for each thing that was not tested, whatever the number of tests; failures come after it."""
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in skipped if isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason}", yellow=True, bold=True)
