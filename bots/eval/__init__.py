"""Evaluates a model, a prompt or an agent with tasks of chat work on the simulated platforms."""
