"""A strict Slack that runs on this machine."""

from simulator.slack.server import SlackSimulator
from simulator.slack.settings import SlackSettings, SlashCommand

__all__ = ["SlackSettings", "SlackSimulator", "SlashCommand"]
