"""Agent definitions, the YAML files that contain them, and the choice of the agent for a run."""
