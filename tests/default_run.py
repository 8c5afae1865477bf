"""The default run of `scripts/test`: unit tests, contracts over SQLite, memory and the jail, and each test that
docs/features.md names.

As a pytest plugin, it leaves out what uses another adapter. Tests that use PostgreSQL or Redis run as well if
THREADHAND_TEST_REQUIRE names the server.
"""

import re

import pytest

from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import is_required

FOLDERS = ("tests/unit", "tests/contracts")
SERVERS = {"postgresql": "postgres", "redis": "redis"}
"""Adapters, with their names in THREADHAND_TEST_REQUIRE."""
PROVIDERS = frozenset({"modal", "docker", "unsafe-process"})


def named_tests() -> list[str]:
    """Returns the files and tests that docs/features.md names, each once."""
    text = (REPOSITORY / "docs" / "features.md").read_text("utf-8")
    return list(dict.fromkeys(re.findall(r"`(tests/(?:\w+/)*test_[^`]+)`", text)))


def options() -> list[str]:
    """Returns the options of pytest that make a run the default one."""
    others = (name for name in named_tests() if not name.startswith(FOLDERS))
    return ["-p", "tests.default_run", *FOLDERS, *others]


def left_out_adapters() -> frozenset[str]:
    return PROVIDERS | {adapter for adapter, server in SERVERS.items() if not is_required(server)}


def adapters(item: pytest.Item) -> frozenset[str]:
    """Returns the parameters of a test and the names of its fixtures. The adapters that it uses are among these."""
    if not isinstance(item, pytest.Function):
        return frozenset()
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    parameters = (value for value in values if isinstance(value, str))
    return frozenset([*parameters, *(name.removesuffix("_url") for name in item.fixturenames)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = left_out_adapters()
    skipped = {item for item in items if adapters(item) & left_out}
    config.hook.pytest_deselected(items=[*skipped])
    items[:] = [item for item in items if item not in skipped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    adapters_in_words = ", ".join(sorted(left_out_adapters()))
    terminalreporter.write_line(
        "Ran: unit tests, contracts, and the tests that docs/features.md names. "
        f"Left out: all other stories, and what uses {adapters_in_words}. "
        "scripts/test --all runs everything; scripts/test PATH runs every test of a file or folder."
    )
