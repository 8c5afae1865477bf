"""What is due for a sandbox, given its state and the time."""

from pathlib import Path

import pytest

from core.domain.sandbox_records import SandboxState
from sandbox.lifecycle_policy import LifecyclePolicy, LifecycleStep, next_step
from sandbox.local.workspaces import Workspaces

MINUTE, HOUR = 60, 3600
DEFAULT_LIFECYCLE = LifecyclePolicy(lifetime_seconds=24 * HOUR)


@pytest.mark.parametrize(
    ("state", "idle", "busy", "age", "step"),
    [
        ("started", 14 * MINUTE, False, HOUR, "keep"),
        ("started", 15 * MINUTE, False, HOUR, "stop"),
        ("started", 15 * MINUTE, True, HOUR, "keep"),
        ("started", 0, False, 22.9 * HOUR, "keep"),
        ("started", 0, False, 23 * HOUR, "stop"),
        ("started", 0, True, 23 * HOUR, "keep"),
        ("started", 0, True, 23.9 * HOUR, "stop"),
        ("stopped", 119 * MINUTE, False, 0, "keep"),
        ("stopped", 120 * MINUTE, False, 0, "archive"),
        ("archived", 1000 * HOUR, False, 0, "keep"),
    ],
)
def test_what_is_due(state: SandboxState, idle: float, busy: bool, age: float, step: LifecycleStep) -> None:
    due = next_step(state, DEFAULT_LIFECYCLE, idle_seconds=idle, age_seconds=age, is_busy=busy)
    assert due == step


def test_a_machine_without_a_limit_of_life_gets_old() -> None:
    assert next_step("started", LifecyclePolicy(), idle_seconds=0, age_seconds=9999 * HOUR) == "keep"


def test_a_use_is_recorded_once_in_ten_seconds_and_when_the_clock_was_set_back(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path, drops_user=False)
    (tmp_path / "thread").mkdir()
    recorded: list[float | None] = []
    for at in (1000.0, 1009.0, 1010.0, 1019.0, 900.0, 901.0):
        workspaces.record_use("thread", at)
        recorded.append(workspaces.last_used_at("thread"))
    assert recorded == [1000.0, 1000.0, 1010.0, 1010.0, 900.0, 900.0]
