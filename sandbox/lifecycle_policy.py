"""Decides when an idle or ageing sandbox is stopped or archived."""

from dataclasses import dataclass
from typing import Literal

from core.domain.sandbox_records import SandboxState

LifecycleStep = Literal["keep", "stop", "archive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecyclePolicy:
    """When sandboxes are stopped and archived. `lifetime_seconds` is the longest time that the provider lets a sandbox
    run; 0 means no limit. Near the end of its lifetime a sandbox is stopped as soon as it is idle, and
    `renewal_seconds` before the end even if it is busy."""

    stop_after_seconds: float = 15 * 60
    archive_after_seconds: float = 120 * 60
    lifetime_seconds: float = 0
    renewal_seconds: float = 10 * 60


def next_step(
    state: SandboxState,
    lifecycle_policy: LifecyclePolicy,
    *,
    idle_seconds: float,
    age_seconds: float = 0,
    is_busy: bool = False,
) -> LifecycleStep:
    """Returns the next step. `stop`: save the files and end the sandbox. `archive`: keep only the saved files."""
    match state:
        case "started":
            if is_busy:
                return "stop" if _ends_within(lifecycle_policy, age_seconds, 1) else "keep"
            is_idle = idle_seconds >= lifecycle_policy.stop_after_seconds
            return "stop" if is_idle or _ends_within(lifecycle_policy, age_seconds, 6) else "keep"
        case "stopped":
            return "archive" if idle_seconds >= lifecycle_policy.archive_after_seconds else "keep"
        case "archived":
            return "keep"


def _ends_within(lifecycle_policy: LifecyclePolicy, age_seconds: float, renewals: int) -> bool:
    if not lifecycle_policy.lifetime_seconds:
        return False
    return age_seconds >= lifecycle_policy.lifetime_seconds - (renewals * lifecycle_policy.renewal_seconds)
