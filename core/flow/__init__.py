"""Carrying out a plan: made from the request, each step run by the agent that it names, one answer at the end."""
