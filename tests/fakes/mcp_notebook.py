"""A real MCP server with one tool, which appends lines to a file: `python mcp_notebook.py FILE`."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("notebook")


@server.tool()
def write_down(line: str) -> str:
    """Adds a line to the notebook."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as notebook:
        notebook.write(f"{line}\n")
    return f"Written down: {line}"


if __name__ == "__main__":
    server.run("stdio")
