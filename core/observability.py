"""What runs tell whoever watches the program: how long a step took, how it ended, what it used. Never what was said."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

from core.domain.threads import Usage

Step = Literal["run", "turn", "model", "tool", "sandbox", "delivery"]


@dataclass(slots=True)
class Timing:
    """What is known of a step only as it goes on. `first_seconds`: until the first sign of an answer."""

    labels: dict[str, str] = field(default_factory=dict[str, str])
    first_seconds: float | None = None


class RunMetrics(Protocol):
    """Neither raises nor waits. Labels are words of the program and ids, never text of people."""

    def timed(self, step: Step, **labels: str) -> AbstractContextManager[Timing]:
        """Entered around a step. What is raised through it is counted by its kind, and passes."""
        ...

    def used(self, model: str, usage: Usage) -> None:
        """What one model call has used."""
        ...


class NoRunMetrics:
    """Where nobody watches."""

    @contextmanager
    def timed(self, step: Step, **labels: str) -> Generator[Timing]:
        yield Timing()

    def used(self, model: str, usage: Usage) -> None: ...


NO_METRICS = NoRunMetrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What the database holds at one moment. `oldest_queued_seconds` counts from when a run was queued last, and is 0
    where nothing is."""

    runs: dict[str, int]
    oldest_queued_seconds: float
    processes_alive: int
    oldest_heartbeat_seconds: float
    open_deliveries: int


class Backlogs(Protocol):
    async def backlog(self) -> Backlog:
        """Counts of the runs that are not over (`queued`, `running`, `waiting`), and of whoever works on them."""
        ...


_marks: ContextVar[Mapping[str, str]] = ContextVar("log_marks", default={})  # noqa: B039 - it is never changed in place


def set_log_context(**log_context: str) -> None:
    """From here on the lines of this task, and of those that it starts, bear these marks: ids, never text of people."""
    _marks.set({**_marks.get(), **log_context})


def log_context() -> Mapping[str, str]:
    return _marks.get()
