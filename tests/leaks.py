"""A pytest plugin: blames a leaked socket or process on its own test.

An unclosed connection is reported when the garbage collector finds it, which may be many tests later. So garbage is
collected at the end of each test that connected, bound or started something.
"""

import gc
import sys
from collections.abc import Generator

import pytest
from _pytest.unraisableexception import collect_unraisable
from aiohttp import web_app

_OPENING = {"socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn"}


class LeakCheck:
    """Collects garbage after tests that opened something. What was there before their module is not looked through: in
    a long run that is a million objects."""

    def __init__(self) -> None:
        self._has_opened = False
        self._place: object = None
        sys.addaudithook(self._note)

    def _note(self, event: str, _arguments: object) -> None:
        if event in _OPENING:
            self._has_opened = True

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.set_threshold(10_000)
            gc.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        place = item.path, len(sys.modules)
        if place != self._place:
            self._place = place
            gc.collect()
            gc.freeze()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield
        if self._has_opened:
            self._has_opened = False
            # it keeps a thousand applications with all that they use, and every collection looks through them
            web_app._cached_build_middleware.cache_clear()
            gc.collect()
            collect_unraisable(item.config)
        return result


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeakCheck(), "threadhand-leaks")
