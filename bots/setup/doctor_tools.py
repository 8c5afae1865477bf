"""The doctor at the tool servers (MCP): each is asked for its tools."""

from bots.settings import Settings, process_environment
from bots.setup.findings import Finding
from core.mcp.settings import McpServerConfig

NAMES_SHOWN_MAX = 6


async def tool_server_finding(server: McpServerConfig, settings: Settings) -> Finding:
    """What a run would get of it now, or why nothing."""
    # only where there is a server: the import of the SDK takes a second
    from core.mcp.probe import trial

    seen = await trial(server, process_environment())
    place = settings.mcp_config
    if seen.problem:
        remedy = f"Start it, or correct it in {place}."
        return Finding("fail", "mcp", f"{server.name}: {seen.problem}.", remedy)
    if not seen.tools:
        fact = f"{server.name} answers, and none of its {seen.listed} tools can be used."
        return Finding("note", "mcp", fact, f"Look at its enabled_tools in {place}.")
    return Finding("ok", "mcp", f"{server.name} answers with {_listed(seen.tools)}.")


def _listed(names: tuple[str, ...]) -> str:
    rest = len(names) - NAMES_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    noun = "tool" if len(names) == 1 else "tools"
    return f"{len(names)} {noun}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}"
