"""Sessions of `threadhand mcp`: each has a thread and a machine of its own, which go with it, however it ends.

A session holds a lock on a file of its own as long as its process lives. What one left that was killed hard is deleted
when the next begins, or by any other process of this machine that looks from time to time. Where files cannot be locked
nobody can tell, and it stays.
"""

import fcntl
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bots.bootstrap.stores import Stores
from bots.bootstrap.worker_locks import free_lock, is_of_this_host, new_worker_id
from bots.settings import Settings
from core.domain.errors import AgentError, StorageUnavailable
from core.domain.threads import Address
from core.ports import SandboxProvider
from core.stores import Conversations

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
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
            thread = await self.conversations.create(_place(name))
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
            lock = free_lock(self.folder / name)
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
            found = await self.conversations.find(_place(name))
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
        return sorted(filter(is_of_this_host, names))

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


def mcp_sessions(settings: Settings, stores: Stores, sandboxes: SandboxProvider | None) -> Sessions:
    """Those of this data folder."""
    return Sessions(
        folder=settings.data_dir / "mcp", conversations=stores.conversations, sandboxes=sandboxes
    )


def _place(name: str) -> Address:
    return Address(platform="api", workspace_id="", channel_id="mcp", thread_key=name)
