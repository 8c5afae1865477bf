"""The MCP servers that the settings name, and which of their tools a run is given."""

import fcntl
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bots.bootstrap.stores import Stores
from bots.bootstrap.worker_locks import acquire_stale_lock, is_from_this_host, new_worker_id
from bots.observability.logs import add_log_secrets
from bots.settings import Settings, process_environment
from core.domain.approval import described
from core.domain.errors import AgentError, StorageUnavailable
from core.domain.threads import Address
from core.mcp.client import McpServers
from core.mcp.settings import McpServerConfig, read_servers, secret_values
from core.ports import SandboxProvider
from core.stores import Conversations
from core.tools.tool import Tool


class McpTools:
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
            replace(tool, needs_approval=partial(_approval_question, tool))
            if self._servers.needs_approval(tool.name)
            else tool
            for tool in await self._servers.tools(servers)
        ]

    async def close(self) -> None:
        await self._servers.close()


def _approval_question(tool: Tool[Any], params: BaseModel) -> str:
    """People see the arguments, too: the name alone does not say what would be done."""
    return described(tool.title(params), params.model_dump(mode="json"))


def build_mcp_tools(settings: Settings) -> McpTools:
    """Raises ConfigurationError as `load_mcp_server_configs`."""
    configs = load_mcp_server_configs(settings)
    names = frozenset(config.name for config in configs)
    return McpTools(McpServers(configs, host_environment=process_environment()), names)


def load_mcp_server_configs(settings: Settings) -> tuple[McpServerConfig, ...]:
    """What they are given in confidence is kept out of the log from here on.

    Raises ConfigurationError with one sentence for a file that cannot be used.
    """
    if not settings.mcp_config:
        return ()
    configs = read_servers(settings.mcp_config, process_environment())
    for config in configs:
        add_log_secrets((*config.secrets, *secret_values(config)))
    return configs


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSessions:
    """`folder` has a file for each session that has not been cleared away."""

    folder: Path
    conversations: Conversations
    sandboxes: SandboxProvider | None

    @asynccontextmanager
    async def begun(self) -> AsyncGenerator[str, None]:
        """A fresh thread while entered. Deletes first what others have left."""
        await self.bury()
        name = new_worker_id()
        lock = self._locked(name)
        try:
            thread = await self.conversations.create(_session_address(name))
            try:
                yield thread.thread_id
            finally:
                await self._clear(name)
        finally:
            if lock >= 0:
                os.close(lock)

    async def bury(self) -> None:
        """Deletes what sessions have left whose process is gone. Nothing is raised for what cannot be deleted now."""
        for name in self._names():
            lock = acquire_stale_lock(self.folder / name)
            if lock < 0:
                continue
            try:
                log.info("the session %s of an MCP client ended without a farewell", name)
                await self._clear(name)
            finally:
                os.close(lock)

    async def _clear(self, name: str) -> None:
        """The file goes last, so that whatever is cut off is done again."""
        try:
            found = await self.conversations.find(_session_address(name))
            if found is not None:
                thread_id = found.thread.thread_id
                if self.sandboxes is not None:
                    await self.sandboxes.destroy(thread_id)
                await self.conversations.forget(thread_id)
        except (AgentError, StorageUnavailable) as error:
            log.warning("the machine of the MCP session %s was not deleted: %s", name, error)
            return
        with suppress(OSError):
            (self.folder / name).unlink()

    def _names(self) -> list[str]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(filter(is_from_this_host, names))

    def _locked(self, name: str) -> int:
        """-1 where there are no locks. Another process may take a file that is only just made for one left behind, and
        delete it: then it is made again."""
        path = self.folder / name
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if path.exists():
                        return lock
                except OSError:
                    os.close(lock)
                    raise
                os.close(lock)
        except OSError as error:
            log.warning(
                "what this MCP session leaves if it is killed will stay: %s", error.strerror
            )
            return -1


def build_mcp_sessions(
    settings: Settings, stores: Stores, sandboxes: SandboxProvider | None
) -> McpSessions:
    """Those of this data folder."""
    return McpSessions(
        folder=settings.data_dir / "mcp", conversations=stores.conversations, sandboxes=sandboxes
    )


def _session_address(name: str) -> Address:
    return Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)
