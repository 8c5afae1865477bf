"""The REST API of a simulated Discord, one module per resource."""
