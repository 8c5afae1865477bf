"""What the host asks of the world outside for a model: pages, searches, pictures, data, deployments."""
