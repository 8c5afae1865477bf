"""The MCP servers that the settings name, and which of their tools a run is given."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from bots.observability.logs import keep_out
from bots.settings import Settings, process_environment
from core.domain.approval import described
from core.mcp.client import McpServers
from core.mcp.redaction import secrets_of
from core.mcp.settings import McpServerConfig, read_servers
from core.tools.tool import Tool


class ToolServers:
    """All servers of the file THREADHAND_MCP_CONFIG; none without one. What may change things there asks first."""

    def __init__(self, servers: McpServers, names: frozenset[str]) -> None:
        self._servers = servers
        self.names = names

    def warm(self) -> None:
        """Starts to connect, and returns at once."""
        self._servers.warm()

    async def tools(self, servers: frozenset[str] | None = None) -> Sequence[Tool[Any]]:
        """Of the servers with these names that can be had now; None: of all."""
        return [
            replace(tool, needs_approval=partial(_asked, tool))
            if self._servers.needs_approval(tool.name)
            else tool
            for tool in await self._servers.tools(servers)
        ]

    async def close(self) -> None:
        await self._servers.close()


def _asked(tool: Tool[Any], params: BaseModel) -> str:
    """People see the arguments, too: the name alone does not say what would be done."""
    return described(tool.title(params), params.model_dump(mode="json"))


def tool_servers(settings: Settings) -> ToolServers:
    """Raises ConfigurationError as `server_configs`."""
    configs = server_configs(settings)
    names = frozenset(config.name for config in configs)
    return ToolServers(McpServers(configs, host_environment=process_environment()), names)


def server_configs(settings: Settings) -> tuple[McpServerConfig, ...]:
    """What they are given in confidence is kept out of the log from here on.

    Raises ConfigurationError with one sentence for a file that cannot be used.
    """
    if not settings.mcp_config:
        return ()
    configs = read_servers(settings.mcp_config, process_environment())
    for config in configs:
        keep_out((*config.secrets, *secrets_of(config)))
    return configs
