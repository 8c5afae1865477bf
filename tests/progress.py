"""A pytest plugin: names each failed test at once, and shows progress with the time left instead of a dot a test.

`--failures-file` gets the failures as JSON, for `tests.run`.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

_LINE_SECONDS = 15.0
_REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True)
class Failure:
    """A failed test: its node id, the reason in one line, and the whole report."""

    test: str
    reason: str
    text: str


class Progress:
    """Counts the tests of a run. With xdist it runs in the controller."""

    def __init__(self, terminal: pytest.TerminalReporter, failures_file: Path | None) -> None:
        self._terminal = terminal
        self._failures_file = failures_file
        self._failures: list[Failure] = []
        self._started_at = self._written_at = time.monotonic()
        self._total = 0
        self._ended = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)
        self._started_at = self._written_at = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = self._total or len(session.items)
        self._started_at = self._written_at = time.monotonic()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.when == "call" and report.passed:
            return ("passed", "", "PASSED")
        return ("failed", "", "FAILED") if report.failed else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"FAILED {report.nodeid}", red=True)
            self._failures.append(Failure(report.nodeid, reason(report), report.longreprtext))
            if self._failures_file is not None:
                content = json.dumps([asdict(one) for one in self._failures])
                self._failures_file.write_text(content)
        if report.when != "teardown":
            return
        self._ended += 1
        now = time.monotonic()
        if now - self._written_at >= _LINE_SECONDS:
            self._written_at = now
            self._terminal.write_line(line(self._ended, self._total, now - self._started_at))


def reason(report: pytest.TestReport) -> str:
    """Returns the first line of the error, or the last line of the report if it has none."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text: str = crash.message if crash is not None else report.longreprtext
    lines = text.strip().splitlines() or ["no reason was reported"]
    line = lines[0] if crash is not None else lines[-1]
    return f"{line[:_REASON_CHARACTERS_MAX]} ({report.when})"


def line(ended: int, total: int, seconds: float) -> str:
    """The progress in words. The estimate assumes that the tests to come take as long as those before."""
    left = seconds / ended * max(0, total - ended)
    return f"{ended:,} of {total:,} tests in {clock(seconds)}, about {clock(left)} left"


def clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures-file", type=Path, help="gets the failed tests as JSON")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        progress = Progress(terminal, config.getoption("--failures-file"))
        config.pluginmanager.register(progress, "threadhand-progress")
