"""The MCP server of the demo: `python mcp_notice_board.py FILE` provides a tool that appends notices to a file.

Notices cannot be removed, so `board_server_settings` makes every call of the tool require a user's approval."""

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, Field

from core.domain.call_consent import STAYS
from core.domain.errors import SandboxUnavailable
from core.mcp.own_server import serve_stdio
from core.ports import Sandbox
from core.tools.tool import Tool, ToolContext, ToolSet


class PinParams(BaseModel):
    """Pin a notice to the board, where everybody reads it."""

    text: str = Field(min_length=1, max_length=500, description="What the notice says.")


async def run_pin(params: PinParams, _context: ToolContext) -> str:
    return f"Pinned as notice {_pinned(Path(sys.argv[1]), ' '.join(params.text.split()))}."


def _pinned(board: Path, line: str) -> int:
    """Appends a notice to the board. Returns the number of notices, including the new notice."""
    with board.open("a", encoding="utf-8") as pinned:
        pinned.write(f"{line}\n")
    return len(read_notices(board))


def read_notices(board: Path) -> list[str]:
    return board.read_text("utf-8").splitlines() if board.exists() else []


def board_server_settings(board: Path) -> str:
    """Returns the content of a THREADHAND_MCP_CONFIG file that configures this server."""
    server = {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(Path(__file__).absolute()), str(board)],
        "env": {"PYTHONPATH": str(Path(__file__).absolute().parents[2])},
        "needs_approval": ["*"],
        "trusted": True,
    }
    return json.dumps({"servers": {"board": server}})


pin = Tool(
    name="pin", effect="acts", reach=STAYS, params=PinParams, run=run_pin, title=lambda params: f"Pin: {params.text}"
)


async def _no_sandbox() -> Sandbox:
    raise SandboxUnavailable("The notice board has no sandbox.")


if __name__ == "__main__":
    context = ToolContext(thread_id="board", run_id="board", sandbox=_no_sandbox)
    asyncio.run(serve_stdio(ToolSet({pin.name: pin}), lambda: nullcontext(context)))
