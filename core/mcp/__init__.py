"""The Model Context Protocol: a client that uses other servers' tools, and a server that offers ours."""
