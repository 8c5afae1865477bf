"""Threadbench: tasks of chat work for an agent in Slack or Discord, with checks of what the agent leaves behind."""
