"""What a unit test may not do is refused."""

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.conftest import ForbiddenInUnitTests


def bind() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


@pytest.mark.parametrize(
    "attempt",
    [bind, lambda: sqlite3.connect(":memory:"), lambda: subprocess.run([sys.executable, "--version"], check=True)],
    ids=["socket", "database", "process"],
)
def test_an_attempt_is_refused(attempt: Callable[[], object]) -> None:
    with pytest.raises(ForbiddenInUnitTests):
        attempt()
