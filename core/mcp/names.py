"""What the tools of MCP servers are called here: `mcp_<server>_<tool>`, unique, and fit for every model provider."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

NAME_CHARACTERS_MAX = 64
_DIGEST_CHARACTERS = 6


def prefix(server: str) -> str:
    """The start of the names of all tools of a server."""
    return f"{_tidy(f'mcp_{server}')}_"


def full_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """The name here of each tool of a server, by the server's own.

    Where several would get the same, the one whose own name needed no change keeps it, and the others carry a digest
    of theirs; so does a name that had to be cut. No order matters.
    """
    wanted: dict[str, list[str]] = defaultdict(list)
    for tool in dict.fromkeys(tools):
        wanted[_tidy(prefix(server) + tool)].append(tool)
    found: dict[str, str] = {}
    for name, rivals in wanted.items():
        for tool in rivals:
            is_own = name == prefix(server) + tool or len(rivals) == 1
            fits = is_own and name + "_" != prefix(server) and len(name) <= NAME_CHARACTERS_MAX
            found[tool] = name if fits else _marked(name, tool)
    return found


def _tidy(name: str) -> str:
    return re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")


def _marked(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: NAME_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}_{digest}"
