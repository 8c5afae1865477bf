"""Our MCP server with the tools that the official conformance suite calls: `python mcp_conformance_server.py PORT`."""

import asyncio
import sys
from typing import Any

from core.domain.call_consent import STAYS
from core.domain.errors import ToolError
from core.domain.events import ActivityChanged
from core.mcp.own_server import serve_http
from core.tools.tool import Tool, ToolContext, ToolSet
from tests.fakes.mcp_own import Nothing, always, draw, no_sandbox


async def say(_params: Nothing, _context: ToolContext) -> str:
    return "This is a simple text response for testing."


async def fail(_params: Nothing, _context: ToolContext) -> str:
    raise ToolError("This tool intentionally returns an error for testing")


async def work(_params: Nothing, context: ToolContext) -> str:
    for step in range(3):
        context.emit(ActivityChanged(text=f"step {step}"))
        await asyncio.sleep(0.05)
    return "done"


RUNS = {
    "test_simple_text": say,
    "test_image_content": draw,
    "test_error_handling": fail,
    "test_tool_with_progress": work,
}
TOOLS: dict[str, Tool[Any]] = {
    name: Tool(name=name, effect="reads", reach=STAYS, params=Nothing, run=run, title=lambda _params: "test")
    for name, run in RUNS.items()
}


if __name__ == "__main__":
    shared = ToolContext(thread_id="conformance", run_id="conformance", sandbox=no_sandbox)
    asyncio.run(serve_http(ToolSet(TOOLS), always(shared), port=int(sys.argv[1])))
