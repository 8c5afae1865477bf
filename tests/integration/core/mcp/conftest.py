"""Fixtures: real MCP servers on this machine."""

import pytest

from tests.support.mcp_servers import Guest, MakeGuest, stdio
from tests.support.mcp_servers import guest as guest
from tests.support.mcp_servers import guest_of as guest_of
from tests.support.mcp_servers import web as web


@pytest.fixture(params=["auto", "legacy"])
async def modern(request: pytest.FixtureRequest, guest_of: MakeGuest) -> Guest:
    return await guest_of(stdio(program="mcp_modern.py", protocol=request.param)).ready()
