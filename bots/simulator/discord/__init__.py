"""A strict Discord that runs on this machine."""

from bots.simulator.discord.server import DiscordSimulator
from bots.simulator.discord.settings import DiscordSettings

__all__ = ["DiscordSettings", "DiscordSimulator"]
