"""Web access of the host on behalf of a model: pages, searches, pictures, data providers and deployments."""
