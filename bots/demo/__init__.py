"""The demonstration: the whole program against a Slack and a Discord on this machine."""
