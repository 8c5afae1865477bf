"""Builds the tools of configured MCP servers, and the sessions of Threadhand's own MCP server (`threadhand mcp`).

Each session has its own thread and sandbox, which are deleted when the session ends. A session holds a file lock as
long as its process lives. Any Threadhand process on the same host can therefore detect a killed session and delete its
thread and sandbox. Without file locks, the data of killed sessions is not deleted."""

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bots.bootstrap.stores import Stores
from bots.observability.logs import add_log_secrets
from bots.settings import Settings, process_environment
from core.domain.errors import RunError, StorageUnavailable
from core.domain.threads import Address
from core.mcp.secrets import secret_values
from core.mcp.servers import McpServers
from core.mcp.settings import McpServerConfig, read_servers
from core.ports import SandboxProvider
from core.run.worker_liveness import acquire_stale_lock, is_from_this_host, lock_file, new_worker_id
from core.stores import Conversations


def build_mcp_servers(settings: Settings) -> McpServers:
    """Builds the clients of the servers in the THREADHAND_MCP_CONFIG file. Raises ConfigurationError if the file cannot
    be used."""
    return McpServers(load_mcp_server_configs(settings), host_environment=process_environment())


def load_mcp_server_configs(settings: Settings) -> tuple[McpServerConfig, ...]:
    """Reads the THREADHAND_MCP_CONFIG file and registers the servers' secrets for redaction in the log.

    Raises ConfigurationError if the file cannot be used."""
    if not settings.mcp_config:
        return ()
    configs: list[McpServerConfig] = []
    for config in read_servers(settings.mcp_config, process_environment()):
        if config.oauth is not None and config.oauth.token_folder is None:
            oauth = config.oauth.model_copy(update={"token_folder": settings.data_dir / "mcp-tokens"})
            config = config.model_copy(update={"oauth": oauth})
        configs.append(config)
        add_log_secrets((*config.secrets, *secret_values(config)))
    return tuple(configs)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSessions:
    """Creates and deletes the sessions of `threadhand mcp`. `folder` holds a lock file for each existing session."""

    folder: Path
    conversations: Conversations
    sandboxes: SandboxProvider | None

    @asynccontextmanager
    async def open_session(self) -> AsyncGenerator[str, None]:
        """Context manager: yields the ID of a new thread and deletes the thread at the end.

        Before that, deletes the sessions of processes that have ended."""
        await self.delete_dead_sessions()
        name = new_worker_id()
        lock = await self._acquire_lock(name)
        try:
            thread = await self.conversations.create(_session_address(name))
            try:
                yield thread.thread_id
            finally:
                await self._delete(name)
        finally:
            if lock >= 0:
                os.close(lock)

    async def delete_dead_sessions(self) -> None:
        """Deletes the sessions of processes that have ended. Failed deletions are logged, not raised."""
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return
        for name in filter(is_from_this_host, names):
            lock = acquire_stale_lock(self.folder / name)
            if lock < 0:
                continue
            try:
                log.info("deleting the MCP session %s, whose process was killed", name)
                await self._delete(name)
            finally:
                os.close(lock)

    async def _delete(self, name: str) -> None:
        """Deletes a session. The lock file goes last, so that the next sweep repeats an interrupted deletion."""
        try:
            found = await self.conversations.find(_session_address(name))
            if found is not None:
                thread_id = found.thread.thread_id
                if self.sandboxes is not None:
                    await self.sandboxes.destroy(thread_id)
                await self.conversations.delete_thread(thread_id)
        except (RunError, StorageUnavailable, OSError) as error:
            log.warning("the sandbox of the MCP session %s was not deleted: %s", name, error)
            return
        with suppress(OSError):
            (self.folder / name).unlink()

    async def _acquire_lock(self, name: str) -> int:
        """Creates and locks the file of a session. Returns its file descriptor, or -1 if files cannot be locked.

        Tries again if another process deletes the file before it is locked, because an unlocked file looks like the
        file of a dead session."""
        path = self.folder / name
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    await lock_file(lock)
                    if path.exists():
                        return lock
                except BaseException:
                    os.close(lock)
                    raise
                os.close(lock)
        except OSError as error:
            log.warning("if this MCP session is killed, its sandbox will not be deleted: %s", error.strerror)
            return -1


def build_mcp_sessions(settings: Settings, stores: Stores, sandboxes: SandboxProvider | None) -> McpSessions:
    return McpSessions(folder=settings.data_dir / "mcp", conversations=stores.conversations, sandboxes=sandboxes)


def _session_address(name: str) -> Address:
    return Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)
