"""An MCP server that knows `initialize` only, without the SDK: `python mcp_old.py TRICK LOG`.

LOG gets the first message of each start. TRICK: `exits` on another first message, as servers on the Rust SDK do;
`slow` takes a second to start; `breaks` exits with a reason; `new` speaks only a version that nobody knows.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

TOOL = {"name": "echo", "description": "d", "inputSchema": {"type": "object"}}


def answer(asked: dict[str, Any], trick: str) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            return {
                "protocolVersion": "2999-01-01" if trick == "new" else "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case _:
            return {"content": [{"type": "text", "text": "from long ago"}]}


def main() -> None:
    trick, log = sys.argv[1:3]
    if trick == "slow":
        time.sleep(1)
    if trick == "breaks":
        sys.stderr.write("reading the settings\nno API key for sk-secret-12345678\n")
        sys.exit(3)
    is_first = True
    for line in sys.stdin:
        asked = json.loads(line)
        if is_first:
            with Path(log).open("a") as file:
                file.write(f"{asked['method']}\n")
        if is_first and asked["method"] != "initialize":
            sys.exit("expected initialize")
        is_first = False
        if "id" in asked:
            sent = {"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked, trick)}
            sys.stdout.write(f"{json.dumps(sent)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
