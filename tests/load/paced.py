"""`python -m tests.load.paced python -m bots ...`: the program, which treats the simulators as the real platforms.

It spaces its posts before anything is refused, as it does everywhere except on this machine.
"""

import runpy
import sys

from bots.discord.rest import client as discord_client
from bots.slack.web_api import client as slack_client

if __name__ == "__main__":
    for module in (slack_client, discord_client):
        module.__dict__["is_loopback"] = lambda _url: False
    sys.argv = ["bots", *sys.argv[4:]]
    runpy.run_module("bots", run_name="__main__", alter_sys=True)
