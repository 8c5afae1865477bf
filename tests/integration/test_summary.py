"""What a run of the tests says at its end."""

import subprocess
import sys
from pathlib import Path

from tests.paths import REPOSITORY

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(40))
def test_without(number):
    pytest.skip("NOT TESTED with an engine: there is none")

def test_wrong():
    assert 1 == 2
"""


def test_what_was_not_tested_takes_one_line_and_what_failed_is_named_last(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    root = REPOSITORY
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-n", "2", "-p", "tests.conftest"]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    lines = ran.stdout.splitlines()
    skips = [number for number, line in enumerate(lines) if "NOT TESTED" in line]
    assert len(skips) == 1, ran.stdout
    assert lines[skips[0]] == "40 skipped: NOT TESTED with an engine: there is none"
    failed = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert failed > skips[0]
    assert "test_wrong" in lines[failed]
