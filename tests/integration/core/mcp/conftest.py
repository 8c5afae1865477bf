"""Fixtures: real MCP servers on this machine."""

from tests.support.mcp_servers import guest as guest
from tests.support.mcp_servers import guest_of as guest_of
from tests.support.mcp_servers import web as web
