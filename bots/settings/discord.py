"""The settings of Discord, including the gateway shards that a process connects."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, SecretStr

from bots.settings.validation import NO_SECRET, ServiceUrl, require_each

COUNT_MAX = 10_000
EXAMPLE = "0-3/8"


@dataclass(frozen=True, slots=True)
class Shards:
    """The gateway shards from `first` to `last`, inclusive. The bot has `count` shards in total, numbered from 0."""

    first: int
    last: int
    count: int

    @property
    def numbers(self) -> list[int]:
        return list(range(self.first, self.last + 1))

    def receives_guild(self, guild_id: int) -> bool:
        """Whether these shards receive the events of a guild. Pass 0 as `guild_id` for direct messages."""
        return self.first <= (guild_id >> 22) % self.count <= self.last


def parse_shards(text: str) -> Shards:
    """Parses shards from text such as `0-3/8` (shards 0 to 3 of 8) or `3/8` (only shard 3).

    Raises ValueError if the text has another format or the numbers are out of range."""
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


class DiscordSettings(BaseModel):
    """Part of `bots.settings.Settings`."""

    discord_token: SecretStr = NO_SECRET
    discord_api_url: ServiceUrl = "https://discord.com/api/v10"
    discord_shards: Annotated[str, require_each(parse_shards)] = ""
