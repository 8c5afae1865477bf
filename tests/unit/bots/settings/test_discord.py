"""How a division of shards is written."""

import pytest

from bots.settings import load_settings
from bots.settings.discord import Shards, parse_shards
from core.domain.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "shards"), [("0-3/8", Shards(0, 3, 8)), ("7/8", Shards(7, 7, 8)), ("0/1", Shards(0, 0, 1))]
)
def test_a_range_or_a_single_shard_is_read(text: str, shards: Shards) -> None:
    assert parse_shards(text) == shards
    assert load_settings({"THREADHAND_DISCORD_SHARDS": text}, None).discord_shards == text


@pytest.mark.parametrize(
    "text", ["8", "0-3", "4-8/8", "3-2/8", "8/8", "-1/8", "0/0", "0/10001", "0-3/8 ", "0,1/2", "٣/8"]
)
def test_what_is_no_division_is_refused_with_its_remedy(text: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_DISCORD_SHARDS has a bad value"):
        load_settings({"THREADHAND_DISCORD_SHARDS": text}, None)


def test_every_guild_is_on_exactly_one_shard() -> None:
    halves = [parse_shards("0-3/8"), parse_shards("4-7/8")]
    for guild_id in (0, 81384788765712384, 197038439483310086, (1 << 64) - 1):
        assert [one.receives_guild(guild_id) for one in halves].count(True) == 1
    assert halves[0].receives_guild(0)
    assert halves[0].numbers == [0, 1, 2, 3]
