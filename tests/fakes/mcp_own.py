"""A few of our own tools. Run as a program, this module serves them as an MCP server over stdio."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from pydantic import BaseModel, Field

from core.domain.call_consent import STAYS
from core.domain.messages import Message
from core.mcp.own_server import serve_stdio
from core.ports import Sandbox
from core.tools.replies import ask
from core.tools.tool import Tool, ToolContext, ToolOutput, ToolSet

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Greet(BaseModel):
    """Says hello."""

    name: str = Field(description="Whom.")
    times: int = Field(default=1, ge=1, le=9)


class Nothing(BaseModel):
    """Takes nothing."""


async def greet(params: Greet, _context: ToolContext) -> str:
    return " ".join([f"Hello {params.name}!"] * params.times)


async def draw(_params: Nothing, context: ToolContext) -> ToolOutput:
    picture = Message(
        type="image_context",
        content={"mime_type": "image/png", "base64": PNG, "original_size": len(base64.b64decode(PNG))},
        is_llm_message=False,
        thread_id=context.thread_id,
    )
    return ToolOutput(output="drawn", messages=(picture,))


async def break_down(_params: Nothing, _context: ToolContext) -> str:
    raise RuntimeError("a secret detail")


async def send(_params: Nothing, _context: ToolContext) -> str:
    raise AssertionError("it runs although nobody allowed it")


ALL: dict[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        Tool(name="greet", effect="reads", reach=STAYS, params=Greet, run=greet, title=lambda _params: "greet"),
        Tool(name="draw", effect="reads", reach=STAYS, params=Nothing, run=draw, title=lambda _params: "draw"),
        Tool(name="break", effect="acts", reach=STAYS, params=Nothing, run=break_down, title=lambda _params: "break"),
        Tool(
            name="send",
            effect="acts",
            reach=STAYS,
            params=Nothing,
            run=send,
            title=lambda _params: "send",
            needs_approval=lambda _params: "Send it",
        ),
        ask,
    )
}


async def no_sandbox() -> Sandbox:
    raise AssertionError("none of these needs one")


def always(context: ToolContext) -> Callable[[], AbstractAsyncContextManager[ToolContext]]:
    """Returns a function that opens the same context for every session."""
    return lambda: nullcontext(context)


if __name__ == "__main__":
    shared = ToolContext(thread_id="stdio", run_id="stdio", sandbox=no_sandbox)
    asyncio.run(serve_stdio(ToolSet(ALL), always(shared)))
