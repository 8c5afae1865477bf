"""Names the tools of MCP servers as models see them."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

TOOL_NAME_CHARACTERS_MAX = 64
PREFIX = "mcp_"
"""The names of all tools of servers begin with it, and no other tool's name does."""

_DIGEST_CHARACTERS = 6


def tool_name_prefix(server: str) -> str:
    """Returns the prefix that the names of all tools of a server share."""
    return f"{_tidy(f'{PREFIX}{server}')}_"


def tool_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Maps the server's own tool names to the names that models see: `mcp_<server>_<tool>`, unique and valid.

    If several tools would get the same name, the tool whose name needed no change keeps it. The other tools, and tools
    with too long a name, get a digest of their own name as suffix. The order of the tools does not matter."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for tool in dict.fromkeys(tools):
        wanted[_tidy(tool_name_prefix(server) + tool)].append(tool)
    found: dict[str, str] = {}
    for name, rivals in wanted.items():
        for tool in rivals:
            is_own = name == tool_name_prefix(server) + tool or len(rivals) == 1
            fits = is_own and name + "_" != tool_name_prefix(server) and len(name) <= TOOL_NAME_CHARACTERS_MAX
            digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
            marked = f"{name[: TOOL_NAME_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}_{digest}"
            found[tool] = name if fits else marked
    return found


def _tidy(name: str) -> str:
    return re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")
