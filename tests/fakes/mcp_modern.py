"""A real MCP server whose tools use what protocols since 2025 offer: `python mcp_modern.py`."""

import asyncio
import base64

import mcp.types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

server = MCPServer("modern", instructions="Look before you leap.")


class Order(BaseModel):
    size: str
    number: int = Field(default=1)


@server.tool()
async def order(dish: str, context: Context) -> str:
    """Orders a dish, after people have said which size."""
    said = await context.elicit(f"Which size of {dish}?", Order)
    return said.model_dump_json()


@server.tool()
async def book(dish: str, context: Context) -> str:
    """Books a dish, and fails unless people say which size."""
    said = await context.elicit(f"Which size of {dish}?", Order)
    if said.action != "accept":
        raise MCPError(-32_000, "People have not answered.")
    return said.model_dump_json()


@server.tool()
async def think(context: Context) -> str:
    """Lets the client's model think."""
    try:
        await context.session.create_message(messages=[], max_tokens=1)
    except MCPError as error:
        return f"{error.code} {error.message}"
    return "it thought"


@server.tool()
async def work(steps: int, context: Context) -> str:
    """Works for longer than a call may take, and says so."""
    for step in range(steps):
        await context.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(0.2)
    return "worked"


@server.tool(structured_output=False)
def files() -> types.CallToolResult:
    """Files of every kind, once more as structured content."""
    sound = base64.b64encode(b"123" * 1_000).decode()
    blob = types.BlobResourceContents(uri="file:///a/report.zip", mime_type="application/zip", blob="MTIz")
    return types.CallToolResult(
        content=[types.AudioContent(data=sound, mime_type="audio/wav"), types.EmbeddedResource(resource=blob)],
        structured_content={"parts": [{"data": sound}]},
    )


@server.resource("notes://today", description="What is to do today.")
def today() -> str:
    return "Buy bread."


@server.resource("notes://day/{day}")
def day_notes(day: str) -> str:
    """The notes of one day."""
    return f"Nothing on {day}."


@server.resource("shop://plan", mime_type="application/pdf")
def plan() -> bytes:
    return b"%PDF-1"


@server.prompt()
def review(text: str, tone: str = "kind") -> str:
    """Asks for a review."""
    return f"Review this in a {tone} tone: {text}"


if __name__ == "__main__":
    server.run("stdio")
