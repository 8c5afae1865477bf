"""Simulated platforms, and how the program finds them."""

from simulator.__main__ import discord_line, slack_line
from simulator.discord.server import DiscordSimulator
from simulator.slack.server import SlackSimulator


def environment_of(platform: SlackSimulator | DiscordSimulator) -> dict[str, str]:
    """Returns the variables with which the program connects to the platform."""
    line = slack_line(platform) if isinstance(platform, SlackSimulator) else discord_line(platform)
    environment = line["environment"]
    assert isinstance(environment, dict)
    return {str(name): str(value) for name, value in environment.items()}
