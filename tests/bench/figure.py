"""What a figure is, and which ones there are."""

import importlib
import pkgutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import tests.bench.figures


class Unmeasurable(Exception):
    """This machine lacks what a figure needs; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`measure` answers the value in the unit, or raises Unmeasurable. At most `bound` is good; if `is_minimum` is
    set, at least `bound`."""

    name: str
    unit: str
    bound: float
    measure: Callable[[], Awaitable[float]]
    is_minimum: bool = False

    def is_good(self, value: float) -> bool:
        return value >= self.bound if self.is_minimum else value <= self.bound


def figures() -> dict[str, Figure]:
    """All of them by name. Raises ValueError where two share one."""
    found: dict[str, Figure] = {}
    for info in sorted(pkgutil.iter_modules(tests.bench.figures.__path__), key=lambda one: one.name):
        module = importlib.import_module(f"tests.bench.figures.{info.name}")
        for figure in vars(module).values():
            if not isinstance(figure, Figure):
                continue
            if found.setdefault(figure.name, figure) is not figure:
                raise ValueError(f"two figures are named {figure.name!r}")
    return found


def note(sentence: str) -> None:
    """Something beside the figures, for who reads along."""
    sys.stderr.write(f"{sentence}\n")


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank: the smallest value that so many percent of all are not above."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]
