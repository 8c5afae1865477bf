"""How a simulated platform can be told to misbehave."""

import fnmatch
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from simulator.view import SeenFault

FaultKind = Literal[
    "rate_limit",  # answer 429 with Retry-After = seconds
    "server_error",  # answer 500, nothing carried out
    "refuse",  # Slack: answer with the error `code`, nothing carried out
    "error_after",  # carry it out, then answer 500
    "timeout",  # never answer, nothing carried out
    "timeout_after",  # carry it out, never answer
    "slow",  # answer after `seconds`
    "duplicate",  # deliver each event twice
    "delay",  # deliver each event `seconds` late
    "reorder",  # deliver the next two events in reverse order
    "drop_connection",  # close the socket now, without a word
    "reconnect",  # ask the client to reconnect (disconnect / RECONNECT)
    "invalid_session",  # Discord: INVALID_SESSION at the next resume
    "expire_trigger",  # the next interaction's trigger or token is expired already
]


@dataclass(slots=True)
class Fault:
    """`method` is a glob over "chat.postMessage" or "POST /channels/1/messages"; `times` is how often it bites."""

    kind: FaultKind
    method: str = "*"
    times: int = 1
    seconds: float = 1.0
    code: str = "internal_error"


@dataclass(slots=True)
class Faults:
    """The armed faults of one platform."""

    armed: list[Fault] = field(default_factory=list[Fault])

    def arm(self, kind: str, **settings: str | float | int) -> None:
        """Raises ValueError for an unknown kind or setting."""
        if kind == "none":
            self.armed.clear()
            return
        if kind not in get_args(FaultKind):
            raise ValueError(f"no fault named {kind!r}; there are {', '.join(get_args(FaultKind))}")
        unknown = set(settings) - {"method", "times", "seconds", "code"}
        if unknown:
            raise ValueError(f"a fault has no setting {', '.join(sorted(unknown))}")
        self.armed.append(
            Fault(
                kind=cast(FaultKind, kind),
                method=str(settings.get("method", "*")),
                times=int(settings.get("times", 1)),
                seconds=float(settings.get("seconds", 1.0)),
                code=str(settings.get("code", "internal_error")),
            )
        )

    def seen(self) -> tuple[SeenFault, ...]:
        return tuple(SeenFault(kind=fault.kind, times=fault.times) for fault in self.armed)

    def take(self, method: str, *kinds: FaultKind) -> Fault | None:
        """The first armed fault of these kinds that fits the method, used up by one."""
        for fault in self.armed:
            if fault.kind in kinds and fnmatch.fnmatchcase(method, fault.method):
                fault.times -= 1
                if fault.times <= 0:
                    self.armed.remove(fault)
                return fault
        return None
