"""The settings of Discord, and the notation for the gateway shards that one process connects."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, SecretStr

from bots.settings.validation import NO_SECRET, WebUrl

COUNT_MAX = 10_000
EXAMPLE = "0-3/8"


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards `first` to `last`, out of `count` shards numbered from 0."""

    first: int
    last: int
    count: int

    @property
    def numbers(self) -> list[int]:
        return list(range(self.first, self.last + 1))

    def has(self, guild_id: int) -> bool:
        """Whether these shards receive the guild's events. Direct messages have the guild id 0."""
        return self.first <= (guild_id >> 22) % self.count <= self.last


def parse_shards(text: str) -> Shards:
    """Parses `0-3/8`, or `3/8` for a single shard. Raises ValueError."""
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
    """Returns the text unchanged. Raises ValueError if it is neither empty nor valid."""
    if text:
        parse_shards(text)
    return text


class DiscordSettings(BaseModel):
    """Part of `bots.settings.Settings`."""

    discord_token: SecretStr = NO_SECRET
    discord_api_url: WebUrl = "https://discord.com/api/v10"
    discord_shards: Annotated[str, AfterValidator(validate_shards)] = ""
