"""Named points in the code, before and after each write or outgoing call, where a test can make the program crash,
raise or pause.

Inactive unless the setting THREADHAND_FAILPOINTS arms them. It is a comma-separated list of `name[@step]:action[:hit]`,
for example `storage.finish.after:kill`, `slack.post.before:raise:3` (only the third time) or
`slack.post.before@deliver_answer:pause`. A step is the name of a function that is being executed there, without leading
underscores; other passes of the failpoint do not count. Actions: `kill` (SIGKILL to the process itself), `raise`
(FailpointHit), `pause` (SIGSTOP to the process itself)."""

import inspect
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
    name: str
    step: str
    action: Action
    hit: int
    seen: int = 0


_armed: list[_Armed] = []
_names: set[str] = set()


class Failpoint:
    """Context manager for an outgoing call: `Failpoint("slack.post")` triggers `slack.post.before` on entry and
    `slack.post.after` on exit, unless the block raises.

    Create instances at module level, so that `names()` can list them."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        _names.update((f"{name}.before", f"{name}.after"))

    def __enter__(self) -> None:
        if _armed:
            _pass(f"{self.name}.before")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
        place, _, rest = part.partition(":")
        name, at, step = place.partition("@")
        action, _, hit = rest.partition(":")
        if action not in get_args(Action):
            raise ValueError(f"failpoint {part!r}: the action is one of {', '.join(get_args(Action))}")
        if at and not step.isidentifier():
            raise ValueError(f"failpoint {part!r}: the step is the name of a function")
        _armed.append(_Armed(name=name, step=step, action=cast(Action, action), hit=int(hit or 1)))


def _pass(name: str) -> None:
    for armed in _armed:
        if armed.name != name or (armed.step and not _is_executing(armed.step)):
            continue
        armed.seen += 1
        if armed.seen != armed.hit:
            continue
        if armed.action == "raise":
            raise FailpointHit(armed.name)
        os.kill(os.getpid(), signal.SIGKILL if armed.action == "kill" else signal.SIGSTOP)


def _is_executing(step: str) -> bool:
    """Whether a function of this name is on the call stack, which includes the coroutines that await each other."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name.lstrip("_") == step:
            return True
        frame = frame.f_back
    return False
