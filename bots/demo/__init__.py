"""The demo: runs the whole program against simulated Slack and Discord servers on this machine."""
