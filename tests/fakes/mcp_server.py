"""A real MCP server with tools that succeed and fail in various ways: `python mcp_server.py [stdio|sse|http] [port]`.

Over HTTP it prints its port, and it exits when its standard input is closed.
"""

import asyncio
import base64
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import mcp.types as types
import uvicorn
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel
from starlette.applications import Starlette

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("fake")


@server.tool()
def echo(text: str, times: int = 1) -> str:
    """Says it again."""
    return text * times


@server.tool()
def who_am_i() -> str:
    """Its process and its environment."""
    environment = dict(os.environ)  # noqa: TID251 - it is what the test asks for
    return json.dumps({"pid": os.getpid(), "environment": environment})


@server.tool()
def headers(context: Context) -> str:
    """The header that a request came with."""
    request = context.request_context.request
    return str(request.headers.get("x-key")) if request is not None else "none"


@server.tool()
def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@server.tool()
def leak() -> str:
    """Fails as clients of web services do: with the request and its key."""
    key = os.environ.get("SERVICE_TOKEN", "")  # noqa: TID251 - it is what the test asks for
    sys.stderr.write(f"GET https://service.example/?key={key}\n")
    raise ToolError(f"401 for https://service.example/?key={key}")


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    os._exit(3)


@server.tool()
async def hang(started: str = "", cancelled: str = "") -> str:
    """Never answers; makes the files named when it starts and when it is cancelled."""
    if started:
        Path(started).touch()
    try:
        await asyncio.Event().wait()
    finally:
        if cancelled:
            Path(cancelled).touch()
    return ""


@server.tool()
def huge(characters: int) -> str:
    """Much text."""
    return "x" * characters


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def sums(numbers: list[int]) -> dict[str, int]:
    """Structured content."""
    return {"sum": sum(numbers), "count": len(numbers)}


@server.tool(structured_output=False)
def mixed() -> list[types.ContentBlock]:
    """Every kind of content."""
    picture = base64.b64encode(PNG).decode()
    return [
        types.TextContent(text="Look:"),
        types.ImageContent(data=picture, mime_type="image/png"),
        types.ImageContent(data=base64.b64encode(b"<svg/>").decode(), mime_type="image/png"),
        types.AudioContent(data=base64.b64encode(b"123").decode(), mime_type="audio/wav"),
        types.EmbeddedResource(
            resource=types.TextResourceContents(uri="note://one", mime_type="text/plain", text="the note")
        ),
        types.EmbeddedResource(
            resource=types.BlobResourceContents(uri="file://x.bin", mime_type="application/zip", blob="MTIz")
        ),
        types.ResourceLink(uri="note://two", name="two", description="another note"),
    ]


@server.tool()
def say_on_stderr(text: str) -> str:
    """Writes to its log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return "said"


@server.tool()
async def learn(name: str, context: Context) -> str:
    """Gets a new tool while connected."""
    server.add_tool(lambda: "new", name=name, description="New.")
    await context.notify_tools_changed()
    with suppress(Exception):
        await context.session.send_tool_list_changed()
    return "learnt"


class Order(BaseModel):
    size: str


async def ask_for_size(dish: str) -> Elicit[Order]:
    return Elicit(f"Which size of {dish}?", Order)


@server.tool()
async def reserve(dish: str, size: Annotated[ElicitationResult[Order], Resolve(ask_for_size)]) -> str:
    """Reserves a dish, after people have said which size."""
    return f"{dish}: {size.action}"


@server.tool()
async def wait(until: str, context: Context) -> str:
    """Waits until a file exists."""
    await context.report_progress(0, 1, "waiting")
    while not Path(until).exists():
        await asyncio.sleep(0.02)
    return "waited"


@server.tool()
async def block() -> str:
    """Stops everything in the server."""
    while True:
        signal.pause()


def serve(app: Starlette, port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "stdio"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    match kind:
        case "sse":
            serve(server.sse_app(), port)
        case "http":
            serve(server.streamable_http_app(), port)
        case _:
            server.run("stdio")


if __name__ == "__main__":
    main()
