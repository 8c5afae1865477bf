"""The planning flow: makes a plan from the request, runs each step with its agent, and writes one answer."""
