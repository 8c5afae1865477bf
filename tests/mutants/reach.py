"""A pytest plugin: `--reach=FILE` writes down which tests call which functions of the program, and their seconds."""

import json
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.paths import REPOSITORY

PATHS = ("core/run/", "core/loop/", "bots/inbound/", "bots/delivery/", "storage/sql/stores/")


class Reach:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests = dict[str, tuple[float, list[str]]]()
        self._codes = set[CodeType]()
        self._failed = set[str]()

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        self._codes.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._codes.clear()
        began = time.process_time()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            if item.nodeid not in self._failed:
                functions = {name for name in map(_name, self._codes) if name.startswith(PATHS)}
                self._tests[item.nodeid] = time.process_time() - began, sorted(functions)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._tests))


def _name(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(f'{REPOSITORY}/')}:{code.co_qualname.split('.<')[0]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", type=Path, help="write which tests call which functions to this file")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--reach"):
        config.pluginmanager.register(Reach(file))
