"""When a sandbox is stopped, archived and renewed: what to do, given its state and the time."""

from dataclasses import dataclass
from typing import Literal

from core.domain.sandbox_records import SandboxState

LifecycleStep = Literal["keep", "stop", "archive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecyclePolicy:
    """`lifetime_seconds` is what the provider lets a machine live at most, 0 for ever: near its end the machine is
    stopped as soon as it is not busy, `renewal_seconds` before that even if it is."""

    stop_after_seconds: float = 15 * 60
    archive_after_seconds: float = 120 * 60
    lifetime_seconds: float = 0
    renewal_seconds: float = 10 * 60


def next_step(
    state: SandboxState,
    patience: LifecyclePolicy,
    *,
    idle_seconds: float,
    age_seconds: float = 0,
    is_busy: bool = False,
) -> LifecycleStep:
    """What is due. `stop`: save the files and end the machine. `archive`: keep nothing but the snapshot."""
    match state:
        case "started":
            if is_busy:
                return "stop" if _ends_within(patience, age_seconds, 1) else "keep"
            is_idle = idle_seconds >= patience.stop_after_seconds
            return "stop" if is_idle or _ends_within(patience, age_seconds, 6) else "keep"
        case "stopped":
            return "archive" if idle_seconds >= patience.archive_after_seconds else "keep"
        case "archived":
            return "keep"


def _ends_within(patience: LifecyclePolicy, age_seconds: float, renewals: int) -> bool:
    if not patience.lifetime_seconds:
        return False
    return age_seconds >= patience.lifetime_seconds - renewals * patience.renewal_seconds
