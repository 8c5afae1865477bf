"""Protocols for metrics and the backlog of runs, and ids for log lines. None of them may contain text of a
conversation."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

from core.domain.threads import Usage

Step = Literal["run", "turn", "model", "tool", "sandbox", "delivery"]


@dataclass(slots=True)
class Timing:
    """Facts about a step that become known while it runs. `first_seconds` is the time until the first part of the
    response, `usage` the usage of a model call."""

    labels: dict[str, str] = field(default_factory=dict[str, str])
    first_seconds: float | None = None
    usage: Usage | None = None


class RunMetrics(Protocol):
    """Receives measurements. Methods never raise or block. Labels are fixed words or ids, never text that users
    wrote."""

    def time_step(self, step: Step, **labels: str) -> AbstractContextManager[Timing]:
        """Context manager: measures the duration of the block as this step. Counts exceptions by type and lets them
        propagate."""
        ...

    def count_usage(self, model: str, usage: Usage) -> None:
        """Counts the tokens and the cost of one model call."""
        ...


class NoRunMetrics:
    """Implementation of `RunMetrics` that discards every measurement."""

    @contextmanager
    def time_step(self, step: Step, **labels: str) -> Generator[Timing]:
        yield Timing()

    def count_usage(self, model: str, usage: Usage) -> None: ...


NO_METRICS = NoRunMetrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Numbers of unfinished runs, processes and deliveries at one moment. `oldest_queued_seconds` is how long the
    oldest queued run has waited, or 0 if no run is queued."""

    runs: dict[str, int]
    oldest_queued_seconds: float
    processes_alive: int
    oldest_heartbeat_seconds: float
    open_deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOccupancy:
    """The sandboxes that this process runs. `most` is how many it can run. `waiting` counts threads that wait for
    one, the first of them for `longest_wait_seconds`."""

    running: int = 0
    most: int = 0
    waiting: int = 0
    longest_wait_seconds: float = 0.0


class Backlogs(Protocol):
    async def backlog(self) -> Backlog:
        """Counts the unfinished runs (`queued`, `running`, `waiting`) and the processes that work on them."""
        ...


_marks: ContextVar[Mapping[str, str]] = ContextVar("log_marks", default={})  # noqa: B039 - it is never changed in place


def set_log_context(**log_context: str) -> None:
    """Adds ids to all later log lines of this task and of the tasks that it starts. Never pass text that users
    wrote."""
    _marks.set({**_marks.get(), **log_context})


def get_log_context() -> Mapping[str, str]:
    return _marks.get()
