"""What is due for a sandbox, given its state and the time."""

import pytest

from core.domain.sandbox_records import SandboxState
from sandbox.lifecycle_policy import LifecyclePolicy, LifecycleStep, next_step

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
