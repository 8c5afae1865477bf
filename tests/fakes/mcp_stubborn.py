"""An MCP server that has a child process and ignores requests to exit."""

import os
import signal
import subprocess
import sys

from mcp.server.mcpserver import MCPServer

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
server = MCPServer("stubborn")


@server.tool()
def pids() -> str:
    """Its process and its child."""
    return f"{os.getpid()} {child.pid}"


server.run("stdio")
while True:
    signal.pause()
