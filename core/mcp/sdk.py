"""Everything of this package that needs the MCP SDK, in one module that is imported late."""

from core.mcp.connection import CallLost, CallRefused, Connection, ServerUnreachable
from core.mcp.results import tool_output

__all__ = [
    "CallLost",
    "CallRefused",
    "Connection",
    "ServerUnreachable",
    "tool_output",
]
