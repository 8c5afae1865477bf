"""One look at an MCP server, for whoever asks whether it works: connected, its tools read, and left again."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.context.untrusted_text import line
from core.mcp.connection import Connection, ServerUnreachable
from core.mcp.offers import offers_of
from core.mcp.redaction import blotted, secrets_of
from core.mcp.settings import McpServerConfig

NAME_CHARACTERS_MAX = 60
REASON_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of it. `problem` is empty where the server answered; `tools` are the server's own names of those that
    a run is given, `listed` how many it has."""

    problem: str = ""
    tools: tuple[str, ...] = ()
    listed: int = 0


async def trial(config: McpServerConfig, host_environment: Mapping[str, str]) -> Trial:
    """Takes no longer than the server's own limit for connecting and that for a list. No text of it holds a secret, and
    no process of the server is left."""
    secrets = secrets_of(config)
    connection = Connection(config)
    try:
        await connection.open(host_environment)
        listed = await connection.tools()
        offers = await offers_of(config, listed)
    except ServerUnreachable as error:
        return Trial(problem=line(blotted(str(error), secrets), REASON_CHARACTERS_MAX))
    finally:
        await connection.close()
    names = tuple(line(blotted(one.tool, secrets), NAME_CHARACTERS_MAX) for one in offers)
    return Trial(tools=names, listed=len(listed))
