"""Named places where a test can make the program die, raise or wait: before and after each write and call out.

Off unless armed by the setting THREADHAND_FAILPOINTS, a comma-separated list of `name:action[:hit]`, for example
`storage.finish.after:kill` or `slack.post.before:raise:3` (the third time only). Actions: `kill` (SIGKILL to the own
process), `raise` (FailpointHit), `pause` (SIGSTOP to the own process).
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
    """`with Failpoint("slack.post"):` around one call out passes `slack.post.before` and `slack.post.after`.

    Made once, at module level, so that `names()` knows them all. `after` is passed only when nothing was raised.
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
    """Every failpoint of the modules imported so far."""
    return tuple(sorted(_names))


def arm(specification: str) -> None:
    """Replaces what is armed by the specification (empty: nothing). Raises ValueError for a malformed one."""
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
