"""Which shards of Discord's gateway a process connects: several processes may divide them."""

import re
from dataclasses import dataclass

COUNT_MAX = 10_000
EXAMPLE = "0-3/8"


@dataclass(frozen=True, slots=True)
class Shards:
    """Those from `first` to `last`, of `count` that are numbered from 0."""

    first: int
    last: int
    count: int

    @property
    def numbers(self) -> list[int]:
        return list(range(self.first, self.last + 1))

    def has(self, guild_id: int) -> bool:
        """Whether the events of the guild come here; 0 stands for direct messages."""
        return self.first <= (guild_id >> 22) % self.count <= self.last


def parse_shards(text: str) -> Shards:
    """The shards of `0-3/8`, or of `3/8` where it is a single one. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?/(\d{1,5})", text, re.ASCII)
    if found is None:
        raise ValueError(f"write it like {EXAMPLE}: the first and the last shard, and of how many")
    first, count = int(found[1]), int(found[3])
    last = int(found[2] or first)
    if not first <= last < count <= COUNT_MAX:
        raise ValueError(
            f"the shards of {count} are 0 to {count - 1}, the first before the last"
            if 0 < count <= COUNT_MAX
            else f"there are 1 to {COUNT_MAX} shards"
        )
    return Shards(first, last, count)


def validate_shards(text: str) -> str:
    """The text, where it names shards or is empty. Raises ValueError."""
    if text:
        parse_shards(text)
    return text
