"""Making what a simulated Discord begins with, and the servers that come later."""

from collections.abc import Sequence

from simulator.discord.settings import DiscordSettings
from simulator.discord.world import DIRECT_CHANNEL, TEXT_CHANNEL, Channel, Guild, User, World
from simulator.faults import Faults

_PERSON, _GUILD, _CHANNEL, _DIRECT = 2001, 3001, 4001, 5001


def build_world(
    *,
    token: str,
    people: Sequence[str],
    channels: Sequence[str],
    bot_name: str,
    guild_name: str,
    settings: DiscordSettings,
) -> World:
    """A world with one guild."""
    world = World(
        bot=User(user_id="1001", name=bot_name, is_bot=True),
        people={},
        guilds={},
        token=token,
        settings=settings,
        faults=Faults(),
    )
    found_guild(world, guild_name, people=people, channels=channels)
    return world


def found_guild(world: World, name: str, *, people: Sequence[str], channels: Sequence[str], shard: int = 0) -> Guild:
    """Another guild with the bot in it. Whoever has a name already is the same person there."""
    guild = Guild(
        guild_id=str((shard << 22) + _GUILD + len(world.guilds)),
        name=name,
        people={one: _person(world, one) for one in people},
    )
    world.guilds[guild.guild_id] = guild
    taken = sum(bool(one.guild_id) and not one.is_thread for one in world.channels.values())
    for number, channel_name in enumerate(channels, start=_CHANNEL + taken):
        world.channels[str(number)] = Channel(
            channel_id=str(number), kind=TEXT_CHANNEL, name=channel_name, guild_id=guild.guild_id
        )
    for number, user in enumerate(world.people.values(), start=_DIRECT):
        direct = Channel(channel_id=str(number), kind=DIRECT_CHANNEL, name=f"dm-{user.name}", recipient=user)
        world.channels.setdefault(direct.channel_id, direct)
    return guild


def _person(world: World, name: str) -> User:
    made = User(user_id=str(_PERSON + len(world.people)), name=name)
    return world.people.setdefault(name, made)
