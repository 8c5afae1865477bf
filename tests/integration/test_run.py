"""A run of the tests is red only for a reason: its own tools, tried on small suites with a fault each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.run import is_path, paths_for

PROGRAM = """
import sys
from pathlib import Path
from tests.run import main
sys.exit(main(sys.argv[2:], Path(sys.argv[1])))
"""
SETTINGS = """
[pytest]
addopts = -p no:cacheprovider -p tests.leaks
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
timeout = 5
"""
ALONE = ("-n", "0")
"""Without worker processes, which take longer to start than the tests."""
FAILS_ONCE = """
from pathlib import Path
MARK = Path(__file__).with_suffix(".mark")

def test_once():
    if not MARK.exists():
        MARK.touch()
        assert 1 == 2, "the first time"
"""
SLOW_ONCE = """
import time
from pathlib import Path
import pytest
MARK = Path(__file__).with_suffix(".mark")

@pytest.mark.timeout(0.5)
def test_slow_machine():
    if not MARK.exists():
        MARK.touch()
        time.sleep(10)
"""
FAILS = """
import pytest

@pytest.mark.parametrize("of", ["a b"])
def test_broken(of):
    assert of == "whole", "it is broken"
"""
LEAKS = """
import asyncio

async def test_innocent_before():
    pass

async def test_leaky():
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kept = await asyncio.open_connection("127.0.0.1", port)
    kept[1].itself = kept  # only the garbage collector finds it
    server.close()

async def test_innocent_after():
    pass
"""
ADAPTERS = """
import pytest

@pytest.mark.parametrize("database", ["sqlite", "postgresql", "docker"])
def test_a_contract(database):
    pass
"""


def run(folder: Path, *arguments: str, promised: str = "", **suites: str) -> tuple[int, list[str]]:
    """Runs `tests.run` in the folder, on a machine with these servers. Returns its exit code and its last 30 lines."""
    (folder / "pytest.ini").write_text(SETTINGS)
    for name, text in suites.items():
        (folder / f"test_{name}.py").write_text(text)
    environment = {
        **os.environ,  # noqa: TID251 - tests
        "PYTHONPATH": str(REPOSITORY),
        "THREADHAND_TEST_REQUIRE": promised,
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return ended.returncode, ended.stdout.splitlines()[-30:]


def test_a_failure_that_does_not_come_back_is_flaky_and_said_loudly(tmp_path: Path) -> None:
    suites = ("test_once.py", "test_slow.py")
    code, lines = run(tmp_path, *suites, once=FAILS_ONCE, slow=SLOW_ONCE)
    assert code == 0
    assert "FLAKY: test_once.py::test_once" in lines
    assert "FLAKY: test_slow.py::test_slow_machine" in lines
    assert any("the first time" in one for one in lines)
    code, lines = run(tmp_path, *ALONE, *suites)
    assert (code, [one for one in lines if "FLAKY" in one]) == (0, [])


def test_more_than_two_flaky_tests_are_red(tmp_path: Path) -> None:
    code, lines = run(tmp_path, *ALONE, "test_a.py", "test_b.py", "test_c.py", a=FAILS_ONCE, b=FAILS_ONCE, c=FAILS_ONCE)
    assert code == 1
    assert len([one for one in lines if one.startswith("FLAKY: ")]) == 3


def test_a_broken_test_is_named_with_its_reason_and_the_command_that_repeats_it(tmp_path: Path) -> None:
    code, lines = run(tmp_path, *ALONE, "test_broken.py", "test_once.py", broken=FAILS, once=FAILS_ONCE)
    assert code == 1
    at = lines.index("FAILED: test_broken.py::test_broken[a b]")
    assert "it is broken" in lines[at + 1]
    assert lines[at + 2].strip() == "scripts/test 'test_broken.py::test_broken[a b]'"
    code, lines = run(tmp_path, "--failed", *ALONE)
    assert code == 1
    assert "FAILED: test_broken.py::test_broken[a b]" in lines
    (tmp_path / "test_broken.py").write_text(FAILS.replace("a b", "whole"))
    assert run(tmp_path, "test_broken.py::test_broken[whole]")[0] == 0
    assert run(tmp_path, "--failed") == (0, ["No test failed in the last run."])


def test_a_leaked_socket_is_blamed_on_the_test_that_leaked_it(tmp_path: Path) -> None:
    code, lines = run(tmp_path, *ALONE, "test_leaks.py", leaks=LEAKS)
    assert code == 1
    failed = {one for one in lines if one.startswith("FAILED: ")}
    assert failed == {"FAILED: test_leaks.py::test_leaky"}


@pytest.mark.parametrize(
    ("promised", "passed", "left_out"), [("", "1 passed", "postgresql, redis"), ("postgres", "2 passed", "redis")]
)
def test_the_default_run_leaves_out_the_servers_that_nobody_promises(
    promised: str, passed: str, left_out: str, tmp_path: Path
) -> None:
    plugin = ("-p", "tests.default_run", "test_adapters.py")
    code, lines = run(tmp_path, *ALONE, *plugin, promised=promised, adapters=ADAPTERS)
    assert code == 0
    assert any(line.startswith(passed) for line in lines), lines
    assert any(f"what uses docker, modal, {left_out}, unsafe-process" in line for line in lines)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("tests", True),
        ("tests/unit/core", True),
        ("tests/unit/test_requests.py", True),
        ("tests/chaos/test_crashes.py::test_a_crash[a b]", True),
        ("-x", False),
        ("core", False),
        ("--ignore=tests/unit/test_house_rules.py", False),
    ],
)
def test_a_path_is_told_from_an_option(argument: str, *, expected: bool) -> None:
    assert is_path(argument) is expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("core/loop/turn.py", "tests/unit/core/loop/test_turn.py"),
        ("bots/delivery/next_step.py", "tests/unit/bots/delivery/test_next_step.py"),
        ("bots/settings/__init__.py", "tests/unit/bots/settings/test_settings.py"),
        ("tests/unit/core", "tests/unit/core"),
        ("-x", "-x"),
    ],
)
def test_a_module_of_the_product_stands_for_the_files_that_import_it(argument: str, expected: str) -> None:
    assert expected in paths_for(argument)
