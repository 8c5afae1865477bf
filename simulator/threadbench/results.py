"""The results of an evaluation: what each attempt at a task gave and cost, and how two results differ."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

from pydantic import BaseModel, ConfigDict

RESAMPLES = 10_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Attempt(_Strict):
    """One attempt at a task. It has passed if it has no problems."""

    problems: tuple[str, ...] = ()
    turns: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    transcript: str = ""

    @property
    def passed(self) -> bool:
        return not self.problems


class TaskResult(_Strict):
    name: str
    title: str
    area: str
    attempts: tuple[Attempt, ...]

    def pass_at(self, k: int) -> float:
        """Returns the chance that at least one of `k` attempts passes, estimated without bias from all attempts."""
        count = len(self.attempts)
        failed = sum(not one.passed for one in self.attempts)
        return 1 - comb(failed, k) / comb(count, k)


class EvalResult(_Strict):
    """The result of an evaluation. `subject` says what was evaluated: the model, the agent and the version."""

    subject: str
    started_at: str
    seconds: float
    tasks: tuple[TaskResult, ...]

    @property
    def attempts_each(self) -> int:
        return min((len(task.attempts) for task in self.tasks), default=0)

    def pass_at(self, k: int, area: str = "") -> float:
        return _mean(task.pass_at(k) for task in self.tasks if area in ("", task.area))

    def total(self, figure: Callable[[Attempt], float]) -> float:
        return sum(figure(attempt) for task in self.tasks for attempt in task.attempts)

    @property
    def areas(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(task.area for task in self.tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The change of a figure from the first result to the second, per task, with the bounds of its 95 % interval."""

    name: str
    before: float
    after: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two results over the tasks that both have. `better` and `worse` name the tasks whose pass@1 changed."""

    before: EvalResult
    after: EvalResult
    differences: tuple[Difference, ...]
    better: tuple[str, ...]
    worse: tuple[str, ...]


def compare(before: EvalResult, after: EvalResult) -> Comparison:
    """Compares two results task by task. Raises ValueError if they have no task in common."""
    earlier, later = ({task.name: task for task in one.tasks} for one in (before, after))
    pairs = [(earlier[name], task) for name, task in later.items() if name in earlier]
    if not pairs:
        raise ValueError("The two results have no task in common.")
    figures: tuple[tuple[str, Callable[[TaskResult], float]], ...] = (
        ("pass@1", lambda task: task.pass_at(1)),
        ("turns", lambda task: _mean(one.turns for one in task.attempts)),
        ("input tokens", lambda task: _mean(one.input_tokens for one in task.attempts)),
        ("output tokens", lambda task: _mean(one.output_tokens for one in task.attempts)),
        ("dollars", lambda task: _mean(one.usd for one in task.attempts)),
        ("seconds", lambda task: _mean(one.seconds for one in task.attempts)),
    )
    changes = [(one.name, two.pass_at(1) - one.pass_at(1)) for one, two in pairs]
    return Comparison(
        before=before,
        after=after,
        differences=tuple(_difference(name, figure, pairs) for name, figure in figures),
        better=tuple(name for name, change in changes if change > 0),
        worse=tuple(name for name, change in changes if change < 0),
    )


def _difference(
    name: str, figure: Callable[[TaskResult], float], pairs: Sequence[tuple[TaskResult, TaskResult]]
) -> Difference:
    """Bootstraps over tasks: each task is compared with itself, so hard and easy tasks do not blur the change."""
    befores, afters = [figure(one) for one, _ in pairs], [figure(two) for _, two in pairs]
    changes = [two - one for one, two in zip(befores, afters, strict=True)]
    draw = random.Random(0)
    means = sorted(_mean(draw.choices(changes, k=len(changes))) for _ in range(RESAMPLES))
    return Difference(
        name=name,
        before=_mean(befores),
        after=_mean(afters),
        low=means[round(RESAMPLES * 0.025)],
        high=means[round(RESAMPLES * 0.975) - 1],
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0
