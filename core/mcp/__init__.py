"""The Model Context Protocol, both ways: tools of other servers for our agents, and our tools for other clients."""
