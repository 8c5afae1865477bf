"""Plays the history of a seed in virtual time."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.histories.virtual_time import TraceLog, VirtualTimeLoop, virtual_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    seed: int
    problems: tuple[str, ...]
    trace: tuple[str, ...]
    digest: str
    virtual_seconds: float


class History(Protocol):
    trace: list[str]

    def note(self, line: str) -> None: ...

    async def play(self) -> list[str]:
        """Plays the history to its end. Returns a sentence for each invariant that does not hold then."""
        ...


def play_history(seed: int, epoch_seconds: float, begin: Callable[[VirtualTimeLoop], History]) -> Result:
    """Plays the history that `begin` returns, and checks its invariants at its end."""
    with virtual_time(seed, epoch_seconds) as loop:
        history = begin(loop)
        log = TraceLog(history.note)
        logging.getLogger().addHandler(log)
        try:
            problems = loop.run_until_complete(loop.create_task(history.play()))
        except AssertionError as error:
            problems = [str(error)]
        finally:
            logging.getLogger().removeHandler(log)
        events = [line for line in history.trace if " logs: " not in line]
        digest = hashlib.sha256("\n".join(events).encode()).hexdigest()[:16]
        return Result(
            seed=seed, problems=tuple(problems), trace=tuple(history.trace), digest=digest, virtual_seconds=loop.now
        )
