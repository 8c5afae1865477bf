"""A strict Slack that runs on this machine."""

from bots.simulator.slack.server import SlackSimulator
from bots.simulator.slack.settings import SlackSettings, SlashCommand

__all__ = ["SlackSettings", "SlackSimulator", "SlashCommand"]
