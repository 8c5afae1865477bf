"""Builds the tools of configured MCP servers, and the sessions of our own MCP server (`threadhand mcp`).

Each session has a thread and a sandbox of its own, which are deleted when it ends. While its process lives, a session
holds a lock on a file. The next session, or any other process on this host, deletes what a killed session left behind.
If files cannot be locked, what it left behind stays.
"""

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
from core.domain.approval import describe_call
from core.domain.errors import AgentError, StorageUnavailable
from core.domain.threads import Address
from core.mcp.client import McpServers
from core.mcp.settings import McpServerConfig, read_servers, secret_values
from core.ports import SandboxProvider
from core.stores import Conversations
from core.tools.tool import Tool


class McpTools:
    """The tools of all servers in the file THREADHAND_MCP_CONFIG. Those that may change things ask for approval."""

    def __init__(self, servers: McpServers, server_names: frozenset[str]) -> None:
        self._servers = servers
        self.server_names = server_names

    def start_connecting(self) -> None:
        """Connects to all servers in the background."""
        self._servers.warm()

    async def tools(self, servers: frozenset[str] | None = None) -> Sequence[Tool[Any]]:
        """Returns the tools of the named servers that are reachable now; None means all servers."""
        return [
            replace(tool, needs_approval=partial(_approval_question, tool))
            if self._servers.needs_approval(tool.name)
            else tool
            for tool in await self._servers.tools(servers)
        ]

    async def close(self) -> None:
        await self._servers.close()


def _approval_question(tool: Tool[Any], params: BaseModel) -> str:
    """Shows the arguments too, because the name does not say what would be done."""
    return describe_call(tool.title(params), params.model_dump(mode="json"))


def build_mcp_tools(settings: Settings) -> McpTools:
    """Raises ConfigurationError if the file cannot be used."""
    configs = load_mcp_server_configs(settings)
    names = frozenset(config.name for config in configs)
    return McpTools(McpServers(configs, host_environment=process_environment()), names)


def load_mcp_server_configs(settings: Settings) -> tuple[McpServerConfig, ...]:
    """Reads the file of servers and keeps the servers' secrets out of the log from now on.

    Raises ConfigurationError if the file cannot be used.
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
    """`folder` contains a file for each session that has not been deleted."""

    folder: Path
    conversations: Conversations
    sandboxes: SandboxProvider | None

    @asynccontextmanager
    async def open_session(self) -> AsyncGenerator[str, None]:
        """Context manager: yields the id of a new thread, which is deleted at the end. Deletes dead sessions first."""
        await self.delete_dead()
        name = new_worker_id()
        lock = self._acquire_lock(name)
        try:
            thread = await self.conversations.create(_session_address(name))
            try:
                yield thread.thread_id
            finally:
                await self._delete(name)
        finally:
            if lock >= 0:
                os.close(lock)

    async def delete_dead(self) -> None:
        """Deletes the sessions of processes that have ended. Logs what cannot be deleted now, and does not raise."""
        for name in self._session_names():
            lock = acquire_stale_lock(self.folder / name)
            if lock < 0:
                continue
            try:
                log.info("deleting the MCP session %s, whose process was killed", name)
                await self._delete(name)
            finally:
                os.close(lock)

    async def _delete(self, name: str) -> None:
        """Deletes the file last, so that an interrupted deletion is repeated."""
        try:
            found = await self.conversations.find(_session_address(name))
            if found is not None:
                thread_id = found.thread.thread_id
                if self.sandboxes is not None:
                    await self.sandboxes.destroy(thread_id)
                await self.conversations.forget(thread_id)
        except (AgentError, StorageUnavailable) as error:
            log.warning("the sandbox of the MCP session %s was not deleted: %s", name, error)
            return
        with suppress(OSError):
            (self.folder / name).unlink()

    def _session_names(self) -> list[str]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(filter(is_from_this_host, names))

    def _acquire_lock(self, name: str) -> int:
        """Returns -1 if files cannot be locked. Another process may mistake a file that is not locked yet for one left
        behind and delete it; then it is created again."""
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
                "if this MCP session is killed, its sandbox will not be deleted: %s", error.strerror
            )
            return -1


def build_mcp_sessions(
    settings: Settings, stores: Stores, sandboxes: SandboxProvider | None
) -> McpSessions:
    return McpSessions(
        folder=settings.data_dir / "mcp", conversations=stores.conversations, sandboxes=sandboxes
    )


def _session_address(name: str) -> Address:
    return Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)
