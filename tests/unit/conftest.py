"""Unit tests use no database, process or socket: an attempt fails the test that makes it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FORBIDDEN = frozenset(
    {
        *("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto"),
        *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"),
        "sqlite3.connect",
    }
)
_is_unit_test = False


class ForbiddenInUnitTests(Exception):
    """Such a test belongs in tests/integration."""


def _refuse(event: str, _arguments: object) -> None:
    if _is_unit_test and event in FORBIDDEN:
        raise ForbiddenInUnitTests(event)


sys.addaudithook(_refuse)  # hooks cannot be removed, so a flag switches this one on and off


@contextmanager
def unit_test() -> Iterator[None]:
    global _is_unit_test
    _is_unit_test = True
    try:
        yield
    finally:
        _is_unit_test = False


@pytest.fixture(autouse=True)
def only_memory() -> Iterator[None]:
    with unit_test():
        yield
