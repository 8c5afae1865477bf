"""A strict Discord that runs on this machine."""

from simulator.discord.server import DiscordSimulator
from simulator.discord.settings import DiscordSettings

__all__ = ["DiscordSettings", "DiscordSimulator"]
