"""Metrics that runs report, the backlog of runs, and the ids that log lines carry. Never the text of a conversation."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

from core.domain.threads import Usage

Step = Literal["run", "turn", "model", "tool", "sandbox", "delivery"]


@dataclass(slots=True)
class Timing:
    """Facts that become known while a step runs. `first_seconds`: the time until the first piece of an answer."""

    labels: dict[str, str] = field(default_factory=dict[str, str])
    first_seconds: float | None = None


class RunMetrics(Protocol):
    """Receives measurements. Never raises or blocks. Labels are fixed words or ids, never text that people wrote."""

    def timed(self, step: Step, **labels: str) -> AbstractContextManager[Timing]:
        """Context manager: measures the step inside the block. Exceptions are counted by type and passed on."""
        ...

    def used(self, model: str, usage: Usage) -> None:
        """Counts the tokens and the cost of one model call."""
        ...


class NoRunMetrics:
    """Discards every measurement."""

    @contextmanager
    def timed(self, step: Step, **labels: str) -> Generator[Timing]:
        yield Timing()

    def used(self, model: str, usage: Usage) -> None: ...


NO_METRICS = NoRunMetrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The work in the database at one moment. `oldest_queued_seconds` is the longest wait since a run was last queued;
    0 if no run is queued."""

    runs: dict[str, int]
    oldest_queued_seconds: float
    processes_alive: int
    oldest_heartbeat_seconds: float
    open_deliveries: int


class Backlogs(Protocol):
    async def backlog(self) -> Backlog:
        """Counts the unfinished runs (`queued`, `running`, `waiting`) and the processes that work on them."""
        ...


_marks: ContextVar[Mapping[str, str]] = ContextVar("log_marks", default={})  # noqa: B039 - it is never changed in place


def set_log_context(**log_context: str) -> None:
    """Adds ids to every later log line of this task and of the tasks that it starts. Never pass text of people."""
    _marks.set({**_marks.get(), **log_context})


def log_context() -> Mapping[str, str]:
    return _marks.get()
