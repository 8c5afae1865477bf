"""What tests need of the machine beyond Python packages, and what happens where it is missing."""

import os
from typing import NoReturn

import pytest

REQUIRED_BY = "THREADHAND_TEST_REQUIRE"


def is_required(name: str) -> bool:
    """Whether THREADHAND_TEST_REQUIRE, a comma list such as "jail,postgres", names it."""
    listed = os.environ.get(REQUIRED_BY, "")  # noqa: TID251 - tests have no settings
    return name in {one.strip() for one in listed.split(",")}


def lacking(name: str, why: str) -> NoReturn:
    """Skips the test and says so in one line; fails it where the machine was promised to have the thing.

    `name`: cc, jail, disk, docker, redis, postgres, chromium, faketime, promtool, npm or agentdojo.
    """
    if is_required(name):
        pytest.fail(f"{name} is required by {REQUIRED_BY}, but {why}", pytrace=False)
    pytest.skip(f"NOT TESTED with {name}: {why}")
