"""Sandboxes: isolated machines in which the agent of a thread runs commands."""
