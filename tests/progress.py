"""A pytest plugin: names each failed test at once, and shows progress with the time left instead of a dot a test."""

import time

import pytest

_LINE_SECONDS = 15.0


class Progress:
    """Counts the tests of a run. With xdist it runs in the controller."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
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
        if report.when != "teardown":
            return
        self._ended += 1
        now = time.monotonic()
        if now - self._written_at >= _LINE_SECONDS:
            self._written_at = now
            self._terminal.write_line(line(self._ended, self._total, now - self._started_at))


def line(ended: int, total: int, seconds: float) -> str:
    """The progress in words. The estimate assumes that the tests to come take as long as those before."""
    left = seconds / ended * max(0, total - ended)
    return f"{ended:,} of {total:,} tests in {clock(seconds)}, about {clock(left)} left"


def clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(terminal), "threadhand-progress")
