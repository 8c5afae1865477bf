"""Agents: what each is to be, where that is written down, and which of them works where."""
