"""A document's chunks put together to the larger parts that a model reads one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.knowledge.chunk import Chunk

PART_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring chunks. `number` counts from 0."""

    number: int
    chunks: tuple[Chunk, ...]

    @property
    def text(self) -> str:
        first, *rest = self.chunks
        return "\n\n".join((first.text, *(chunk.own_text for chunk in rest)))

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place_of(chunk) for chunk in self.chunks))


def parts_of(chunks: Iterable[Chunk], *, tokens_max: int = PART_TOKENS) -> list[Part]:
    """Every chunk is in one part; a chunk that is larger alone is a part of its own."""
    parts, held, tokens = list[Part](), list[Chunk](), 0
    for chunk in chunks:
        if held and tokens + chunk.tokens > tokens_max:
            parts.append(Part(len(parts), tuple(held)))
            held, tokens = [], 0
        held.append(chunk)
        tokens += chunk.tokens
    if held:
        parts.append(Part(len(parts), tuple(held)))
    return parts


def parts_with(parts: Sequence[Part], numbers: Iterable[int], *, parts_max: int) -> list[Part]:
    """The parts that hold these chunks, the first chunks' parts first in the choice, in document order."""
    part_of = {chunk.number: part for part in parts for chunk in part.chunks}
    chosen: dict[int, Part] = {}
    for number in numbers:
        if number in part_of and len(chosen) < parts_max:
            chosen.setdefault(part_of[number].number, part_of[number])
    return [chosen[number] for number in sorted(chosen)]


def place_of(chunk: Chunk) -> str:
    """Where people find it: `page 3`, or the heading or the sheet, or, where nothing is known, which passage it is."""
    if chunk.page is not None:
        return f"page {chunk.page}"
    return chunk.place or f"passage {chunk.number + 1}"
