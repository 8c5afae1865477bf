"""Named points in the code, before and after each write or outgoing call, where a test can make the program crash,
raise or pause.

Inactive unless the setting THREADHAND_FAILPOINTS arms them. It is a comma-separated list of `name:action[:hit]`, for
example `storage.finish.after:kill` or `slack.post.before:raise:3` (only the third time). Actions: `kill` (SIGKILL to
the process itself), `raise` (FailpointHit), `pause` (SIGSTOP to the process itself).
"""

import os
import signal
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, cast, get_args

Action = Literal["kill", "raise", "pause"]


class FailpointHit(Exception):
    """Raised by an armed failpoint with the action `raise`."""


@dataclass(slots=True)
class _Armed:
    action: Action
    hit: int
    seen: int = 0


_armed: dict[str, _Armed] = {}
_names: set[str] = set()


class Failpoint:
    """Context manager for an outgoing call: `Failpoint("slack.post")` triggers `slack.post.before` on entry and
    `slack.post.after` on exit, unless the block raises.

    Create instances at module level, so that `names()` can list them.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        _names.update((f"{name}.before", f"{name}.after"))

    def __enter__(self) -> None:
        if _armed:
            _pass(f"{self.name}.before")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _armed and kind is None:
            _pass(f"{self.name}.after")


def names() -> tuple[str, ...]:
    """Returns the names of all failpoints in the modules imported so far."""
    return tuple(sorted(_names))


def arm(specification: str) -> None:
    """Replaces all armed failpoints with those of the specification; an empty string disarms all. Raises ValueError
    if it is malformed."""
    _armed.clear()
    for part in filter(None, (piece.strip() for piece in specification.split(","))):
        name, _, rest = part.partition(":")
        action, _, hit = rest.partition(":")
        if action not in get_args(Action):
            raise ValueError(
                f"failpoint {part!r}: the action is one of {', '.join(get_args(Action))}"
            )
        _armed[name] = _Armed(action=cast(Action, action), hit=int(hit or 1))


def _pass(name: str) -> None:
    armed = _armed.get(name)
    if armed is None:
        return
    armed.seen += 1
    if armed.seen != armed.hit:
        return
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "pause":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise FailpointHit(name)
