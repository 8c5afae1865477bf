"""Counts the items of numbered lists and headings, and spells their numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_ROMAN = {
    "m": 1000, "cm": 900, "d": 500, "cd": 400, "c": 100, "xc": 90, "l": 50, "xl": 40, "x": 10, "ix": 9, "v": 5, "iv": 4,
    "i": 1,
}  # fmt: skip
_SPELLED_MAX = 4_000
_PATTERN_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class ListLevel:
    """How the items of one depth are numbered. `kind` is a word such as lowerRoman, bullet or none.

    In the `pattern`, %1 stands for the number of the outermost depth, %2 for that of the next, and so on."""

    kind: str
    pattern: str
    start: int = 1
    has_decimals: bool = False
    restarts: bool = True


@dataclass(slots=True)
class ListNumbers:
    """The numbers of one list. Depths count from 0. Lists that continue each other share their `counts`.

    `restarts` are the numbers, by depth, at which the counts start again when the list begins."""

    levels: Mapping[int, ListLevel]
    counts: dict[int, int] = field(default_factory=dict[int, int])
    restarts: dict[int, int] = field(default_factory=dict[int, int])

    def next_marker(self, depth: int, number: int | None = None) -> str:
        """Counts the next item and returns its number as its level writes it, or a hyphen for a list without numbers.
        `number` overrides the count."""
        if (level := self.levels.get(depth)) is None:
            return "-"
        while self.restarts:
            at, start = self.restarts.popitem()
            self.counts[at] = start - 1
        self.counts[depth] = self.counts.get(depth, level.start - 1) + 1 if number is None else number
        for deeper in [at for at in self.counts if at > depth and self.levels.get(at, level).restarts]:
            del self.counts[deeper]

        def spell(place: re.Match[str]) -> str:
            at = int(place[1]) - 1
            outer = self.levels.get(at, level)
            count = self.counts.setdefault(at, outer.start)
            return spell_number(count, "decimal" if level.has_decimals else outer.kind)

        return (
            "-"
            if level.kind == "bullet"
            else re.sub("%([1-9])", spell, level.pattern[:_PATTERN_CHARACTERS_MAX]).strip()
        )


def spell_number(number: int, kind: str) -> str:
    """Returns a list item's number as its kind writes it."""
    spelled = str(number)
    if kind.endswith("Letter") and 0 < number < _SPELLED_MAX:
        spelled = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif kind.endswith("Roman") and 0 < number < _SPELLED_MAX:
        spelled = ""
        for letters, value in _ROMAN.items():
            spelled, number = spelled + letters * (number // value), number % value
    return spelled.upper() if kind.startswith("upper") else "" if kind == "none" else spelled
