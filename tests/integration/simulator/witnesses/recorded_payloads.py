"""The payloads of other tests, which it runs with the recorder of tests/payload_recorder.py: each shape once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY
from tests.payload_recorder import hash_of

SECONDS_MAX = 1500
WORKERS = "3"
TESTS = (
    "tests/integration/simulator/{platform}",
    "tests/integration/bots/{platform}",
    "tests/integration/e2e/test_{platform}_surfaces.py",
    "tests/integration/e2e/test_approvals.py",
    "tests/integration/e2e/test_consent.py",
    "tests/integration/e2e/test_planning_flow.py",
    "tests/integration/e2e/test_edited_mentions.py",
    "tests/integration/e2e/test_uninstall.py",
    "tests/integration/bots/test_schedules.py",
)
"""Buttons, menus, forms, files, edits, deletions, threads, direct messages, commands, approvals, streams, faults."""
MALFORMED = ("tests/integration/bots/discord/test_payloads.py",)
"""Here the simulators send on purpose what no platform sends."""


def record_payloads(folder: Path, platform: str) -> list[tuple[str, Any]]:
    """The kind and the content of each payload that the platform and the programs of the tests have sent."""
    named = [f"--ignore={one}" for one in MALFORMED] + [one.format(platform=platform) for one in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-n", WORKERS]
    # the tests of this run have workers of their own
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}  # noqa: TID251 - the tests' own
    ran = subprocess.run(
        [*command, f"--record-payloads={folder}", *named],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    # a test that fails here (1) also fails in its own run, where its reason is told
    assert ran.returncode in (0, 1), ran.stdout[-5000:] + ran.stderr[-2000:]
    return read_payloads(folder, platform)


def check_recorded(
    folder: Path, platform: str, check: Callable[[str, Any], None], *, shapes_min: int
) -> list[tuple[str, Any]]:
    """Checks the payloads that other tests have sent, and returns them. Fails if there are fewer than `shapes_min`
    shapes, because some of these tests no longer run then."""
    payloads = record_payloads(folder, platform)
    for kind, payload in payloads:
        check(kind, payload)
    assert len(payloads) >= shapes_min
    return payloads


def read_payloads(folder: Path, platform: str) -> list[tuple[str, Any]]:
    """What the processes have written, each shape once. The kinds lose the name of the platform."""
    found: dict[int, tuple[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            one = json.loads(line)
            of, _, kind = one["kind"].partition(" ")
            if of == platform:
                found.setdefault(hash_of(kind, one["payload"]), (kind, one["payload"]))
    return list(found.values())
