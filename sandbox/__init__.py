"""Sandboxes: the machines that threads run their commands in."""
